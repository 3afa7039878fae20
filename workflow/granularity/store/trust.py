"""Whom a shared cache believes: oneself, and those that a file of one's own names.

`GRANULARITY_TRUST` is a file with one line for each of those believed, `user NAME` or an OpenSSH public key
(`ssh-ed25519 AAAA... comment`); a line that begins with `#` is a comment. `GRANULARITY_SIGN` is one's private key, as
`ssh-keygen -t ed25519 -N ''` writes it: it signs the entries that one makes.

What is believed is the text of a manifest. It names the entry's key and the SHA-256 of every file, so whoever believes
it need only check these. Its owner vouches for a manifest that nobody else can write; a signature does
wherever it lies.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TRUST, SIGN = "GRANULARITY_TRUST", "GRANULARITY_SIGN"
# What is signed begins with this, so that no signature made for another purpose passes for one of an entry.
DOMAIN = b"granularity cache entry v1\n"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
MOST_BYTES = 2**20  # of a file of keys
_OTHERS_WRITE, _OTHERS_USE = stat.S_IWGRP | stat.S_IWOTH, stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Trusted:
    """Those who are believed: user numbers, raw Ed25519 public keys, and the file that names them, if there is one."""

    users: frozenset[int]
    keys: frozenset[bytes]
    file: str | None


def sign(text: bytes) -> bytes | None:
    """Sign a manifest: the public key and the Ed25519 signature, 96 bytes; None without a key to sign with.

    Raises:
        GranularityError: the key file cannot be read, is no such key, or others can read it.
    """
    key = _private_key()
    return None if key is None else key.public_key().public_bytes_raw() + key.sign(DOMAIN + text)


def believed(manifest: bytes, signature: bytes | None, owner: int, mode: int) -> str | None:
    """Why a manifest is not believed, in one line; None if it is.

    Args:
        manifest: its text.
        signature: what :func:`sign` made of it; None where there is none.
        owner, mode: `st_uid` and `st_mode` of the open file that the text was read from.

    Raises:
        GranularityError: the file that says who is believed is not in order.
    """
    of_whom = trusted()
    if owner in of_whom.users and not mode & _OTHERS_WRITE:
        return None
    of_signature = _why_not_signed(manifest, signature, of_whom)
    if of_signature is None:
        return None
    if owner in of_whom.users:
        of_owner = f"it belongs to {_user(owner)}, but others can write it (mode {stat.S_IMODE(mode):04o})"
    else:
        names = f"{of_whom.file} does not name" if of_whom.file else f"no file names ({TRUST} is not set)"
        of_owner = f"it belongs to {_user(owner)}, whom {names}"
    return f"{of_owner}, and {of_signature}"


def trusted() -> Trusted:
    """Those who are believed: oneself, and those that the file in `GRANULARITY_TRUST` names.

    Raises:
        GranularityError: that file cannot be read, is not in order, or others can write it.
    """
    file = os.environ.get(TRUST)
    if not file:
        return Trusted(frozenset({os.geteuid()}), frozenset(), None)
    try:
        lines = _read(file, TRUST, _OTHERS_WRITE).decode().splitlines()
    except UnicodeDecodeError:
        raise GranularityError(f"{file}: is not text in UTF-8; write lines `user NAME` or public keys") from None
    found = list(_parse(lines, file))
    users = {who for who in found if isinstance(who, int)}
    return Trusted(frozenset(users | {os.geteuid()}), frozenset(key for key in found if isinstance(key, bytes)), file)


def _parse(lines: list[str], file: str) -> Iterator[int | bytes]:
    """The user number or the raw public key of each line."""
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "user" and len(words) == 2:
            try:
                yield pwd.getpwnam(words[1]).pw_uid
            except (KeyError, ValueError):
                raise GranularityError(f"{file}, line {number}: there is no user {words[1]!r}; mend the name") from None
        elif words[0] == "ssh-ed25519" and len(words) >= 2:
            yield _public_key(" ".join(words[:2]), f"{file}, line {number}")
        else:
            raise GranularityError(
                f"{file}, line {number}: neither `user NAME` nor `ssh-ed25519 KEY`; write one of them, or delete it"
            )


def _public_key(line: str, where: str) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        return load_ssh_public_key(line.encode()).public_bytes_raw()
    except (ValueError, UnsupportedAlgorithm):
        raise GranularityError(f"{where}: no sound ssh-ed25519 key; copy the whole line of the .pub file") from None


def _private_key() -> Ed25519PrivateKey | None:
    file = os.environ.get(SIGN)
    if not file:
        return None
    # Here and below, and not above: commands that meet no key do not wait for the library.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(_read(file, SIGN, _OTHERS_USE), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise GranularityError(
            f"{file} ({SIGN}): no Ed25519 private key without passphrase; make one: ssh-keygen -t ed25519 -N '' -f FILE"
        )
    return key


def _read(file: str, variable: str, refused: int) -> bytes:
    """Read a file that must be one's own, or root's, with none of the `refused` permissions."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            about = os.fstat(stream.fileno())
            text = stream.read(MOST_BYTES + 1) if stat.S_ISREG(about.st_mode) else b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GranularityError(f"{file} ({variable}): cannot be read ({reason}); mend the path") from None
    if not stat.S_ISREG(about.st_mode) or len(text) > MOST_BYTES:
        raise GranularityError(f"{file} ({variable}): no file of keys; mend the path")
    if about.st_uid not in (0, os.geteuid()):
        raise GranularityError(f"{file} ({variable}): belongs to {_user(about.st_uid)}; name a file of your own")
    if about.st_mode & refused:
        mode, can = stat.S_IMODE(about.st_mode), "use" if refused == _OTHERS_USE else "write"
        less = "go=" if refused == _OTHERS_USE else "go-w"
        raise GranularityError(f"{file} ({variable}): others can {can} it (mode {mode:04o}); run: chmod {less} {file}")
    return text


def _why_not_signed(manifest: bytes, signature: bytes | None, of_whom: Trusted) -> str | None:
    """Why the signature is not believed; None if it is."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if signature is None:
        return "it is not signed"
    if len(signature) != KEY_BYTES + SIGNATURE_BYTES:
        return "its signature is damaged"
    key = signature[:KEY_BYTES]
    if key not in of_whom.keys:
        return f"the key that signed it is not believed ({_fingerprint(key)})"
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature[KEY_BYTES:], DOMAIN + manifest)
    except (InvalidSignature, ValueError):
        return f"it is not what was signed with {_fingerprint(key)}"
    return None


def _fingerprint(key: bytes) -> str:
    """The name of a public key, as `ssh-keygen -lf` prints it."""
    kind = b"ssh-ed25519"
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind, key))
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user number {number}"
