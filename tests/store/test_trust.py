"""Whom a shared cache believes: real keys of ssh-keygen, and real other users."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.store import trust

MANIFEST = b'{"key": "0123456789abcdef", "files": {"values.npy": {"sha256": "00"}}}'
SELF, OTHER = os.geteuid(), 65534
needs_root = pytest.mark.skipif(SELF != 0, reason="needs root, to be two users")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.delenv(trust.TRUST, raising=False)
    monkeypatch.delenv(trust.SIGN, raising=False)


def keygen(folder: Path, name: str, *words: str) -> Path:
    file = folder / name
    kind = () if "-t" in words else ("-t", "ed25519")
    passphrase = () if "-N" in words else ("-N", "")
    subprocess.run(["ssh-keygen", "-q", *kind, *passphrase, *words, "-C", f"{name}@here", "-f", file], check=True)
    return file


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return {name: keygen(folder, name) for name in ("hers", "his")}


@pytest.fixture
def trusting(tmp_path, monkeypatch):
    """trusting(line, ...): write the file of those who are believed."""

    def write(*lines: str) -> Path:
        file = tmp_path / "trusted"
        file.write_text("\n".join(lines) + "\n")
        file.chmod(0o644)
        monkeypatch.setenv(trust.TRUST, str(file))
        return file

    return write


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text().strip()


@pytest.fixture
def signed(keys, monkeypatch):
    """signed(text, by): a signature."""

    def sign(text: bytes = MANIFEST, by: str = "hers") -> bytes:
        with monkeypatch.context() as patch:
            patch.setenv(trust.SIGN, str(keys[by]))
            return trust.sign(text)

    return sign


def test_without_variables_only_oneself_is_believed(signed):
    assert trust.sign(MANIFEST) is None
    assert trust.believed(MANIFEST, None, SELF, 0o100644) is None
    why = trust.believed(MANIFEST, None, OTHER, 0o100644)
    assert "GRANULARITY_TRUST is not set" in why and "nobody" in why and "not signed" in why
    assert "the key that signed it is not believed (SHA256:" in trust.believed(MANIFEST, signed(), OTHER, 0o100644)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620, 0o602])
def test_what_others_can_write_is_not_believed_unless_signed(mode, trusting, keys, signed):
    trusting(public(keys["hers"]))
    assert f"others can write it (mode {mode:04o})" in trust.believed(MANIFEST, None, SELF, stat.S_IFREG | mode)
    assert trust.believed(MANIFEST, signed(), SELF, stat.S_IFREG | mode) is None


def test_a_user_who_is_named_is_believed(trusting):
    trusting("# the group", "", "user nobody")
    assert trust.believed(MANIFEST, None, OTHER, 0o100644) is None
    assert trust.believed(MANIFEST, None, SELF, 0o100644) is None
    why = trust.believed(MANIFEST, None, 12345, 0o100644)
    assert "user number 12345" in why and "trusted does not name" in why
    assert "others can write" in trust.believed(MANIFEST, None, OTHER, 0o100664)


def test_a_signature_is_believed_whoever_holds_the_file(trusting, keys, signed):
    trusting(public(keys["hers"]))
    assert len(signed()) == 96
    assert trust.believed(MANIFEST, signed(), OTHER, 0o100666) is None
    why = trust.believed(MANIFEST, signed(by="his"), OTHER, 0o100644)
    listed = subprocess.run(["ssh-keygen", "-lf", keys["his"]], capture_output=True, text=True, check=True)
    assert f"the key that signed it is not believed ({listed.stdout.split()[1]})" in why


def test_no_change_to_text_or_signature_is_believed(trusting, keys, signed):
    trusting(public(keys["hers"]), public(keys["his"]))
    signature = signed()
    for text in (MANIFEST + b"\n", MANIFEST[:-1], b"", MANIFEST.replace(b"00", b"01")):
        assert "not what was signed" in trust.believed(text, signature, OTHER, 0o644)
    for at in range(96):
        flipped = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
        assert trust.believed(MANIFEST, flipped, OTHER, 0o644)
    for damaged in (b"", signature[:-1], signature + b"0"):
        assert "its signature is damaged" in trust.believed(MANIFEST, damaged, OTHER, 0o644)
    swapped = signed(by="his")[:32] + signature[32:]
    assert "not what was signed" in trust.believed(MANIFEST, swapped, OTHER, 0o644)


def test_a_signature_for_another_purpose_is_not_believed(trusting, keys):
    """The same key, and the text without the domain in front of it."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    trusting(public(keys["hers"]))
    key = load_ssh_private_key(keys["hers"].read_bytes(), None)
    bare = key.public_key().public_bytes_raw() + key.sign(MANIFEST)
    assert "not what was signed" in trust.believed(MANIFEST, bare, OTHER, 0o644)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("user nobody-of-that-name", "there is no user 'nobody-of-that-name'"),
        ("user", "neither"),
        ("user a b", "neither"),
        ("nobody", "neither"),
        ("ssh-ed25519", "neither"),
        ("ssh-rsa AAAAB3NzaC1yc2E= me", "neither"),
        ("ssh-ed25519 AAAA me", "no sound ssh-ed25519 key"),
        ("ssh-ed25519 ÄÖ me", "no sound ssh-ed25519 key"),
        ('command="x" ssh-ed25519 AAAA', "neither"),
    ],
)
def test_a_bad_line_is_named(line, why, trusting):
    file = trusting("# comment", line)
    with pytest.raises(GranularityError) as error:
        trust.believed(MANIFEST, None, OTHER, 0o644)
    assert str(error.value).startswith(f"{file}, line 2: {why}") and "\n" not in str(error.value)


def test_a_cut_key_is_named(trusting, keys):
    words = public(keys["hers"]).split()
    trusting(f"{words[0]} {words[1][:-8]}")
    with pytest.raises(GranularityError, match="line 1: no sound"):
        trust.trusted()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_trust_file_that_others_can_write_is_refused(mode, trusting):
    trusting("user nobody").chmod(mode)
    with pytest.raises(GranularityError, match=f"others can write it .mode {mode:04o}.; run: chmod go-w"):
        trust.trusted()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_private_key_that_others_can_use_is_refused(mode, tmp_path, monkeypatch):
    key = keygen(tmp_path, "open")
    key.chmod(mode)
    monkeypatch.setenv(trust.SIGN, str(key))
    with pytest.raises(GranularityError, match=r"others can use it .*chmod go= "):
        trust.sign(MANIFEST)


def unfit_keys(folder: Path) -> dict[str, Path]:
    texts = {"empty": b"", "noise": os.urandom(500), "large": b"0" * (trust.MOST_BYTES + 1)}
    found = {name: folder / name for name in texts}
    for name, text in texts.items():
        found[name].write_bytes(text)
        found[name].chmod(0o600)
    os.mkfifo(folder / "pipe", 0o600)
    found |= {"locked": keygen(folder, "locked", "-N", "secret"), "gone": folder / "gone", "folder": folder}
    found |= {"ecdsa": keygen(folder, "ecdsa", "-t", "ecdsa"), "pipe": folder / "pipe"}
    public_key = keygen(folder, "some").with_suffix(".pub")
    public_key.chmod(0o600)
    return found | {"public": public_key}


def test_an_unfit_key_file_is_one_line(tmp_path, monkeypatch):
    for name, file in unfit_keys(tmp_path).items():
        monkeypatch.setenv(trust.SIGN, str(file))
        with pytest.raises(GranularityError) as error:
            trust.sign(MANIFEST)
        message = str(error.value)
        assert str(file) in message and "GRANULARITY_SIGN" in message and "\n" not in message, name


def test_an_unfit_trust_file_is_one_line(tmp_path, monkeypatch):
    for name in ("gone", "folder", "noise"):
        monkeypatch.setenv(trust.TRUST, str(unfit := tmp_path / name))
        if name == "folder":
            unfit.mkdir()
        if name == "noise":
            unfit.write_bytes(b"\xff\xfe")
        with pytest.raises(GranularityError, match=name):
            trust.trusted()


# ---------------------------------------------------------------- real users

# What somebody else meets: the manifest in the cache, read as the cache reads it.
READER = """
import json, os, sys
from cryptography.hazmat.primitives.asymmetric import ed25519
from granularity.base.errors import GranularityError
from granularity.store import trust
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
try:
    with open(sys.argv[2], "rb") as stream:
        about = os.fstat(stream.fileno())
        print(json.dumps(trust.believed(stream.read(), None, about.st_uid, about.st_mode)))
except GranularityError as error:
    print(json.dumps(f"error: {error}"))
"""


@pytest.fixture
def read_as(tmp_path):
    def read(user: int, file: Path, trusted: Path | None = None) -> str | None:
        words = [sys.executable, "-c", READER, str(user), file]
        environment = os.environ | ({trust.TRUST: str(trusted)} if trusted else {})
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == SELF and str(place) not in ("/", "/tmp"):
            place.chmod(place.stat().st_mode | 0o011)
    return read


@needs_root
def test_two_users(tmp_path, read_as):
    file, list_of_root, own_list = (tmp_path / name for name in ("manifest.json", "of root", "own"))
    file.write_bytes(MANIFEST)
    file.chmod(0o644)
    for one in (list_of_root, own_list):
        one.write_text("user root\n")
        one.chmod(0o644)
    os.chown(own_list, OTHER, OTHER)
    assert "belongs to user root, whom no file names" in read_as(OTHER, file)
    assert read_as(OTHER, file, list_of_root) is None and read_as(OTHER, file, own_list) is None
    assert read_as(1, file, own_list).startswith(f"error: {own_list} (GRANULARITY_TRUST): belongs to user nobody")
    os.chown(file, OTHER, OTHER)
    assert read_as(OTHER, file) is None
    assert "belongs to user nobody, whom" in read_as(1, file, list_of_root)
    file.chmod(0o664)
    assert "others can write it" in read_as(OTHER, file)
