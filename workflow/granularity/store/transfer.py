"""Copy results to a folder or an fsspec URL, and back: `granularity push` and `granularity pull`.

URL/generations/KIND-KEY.tar   one generation: its manifest, then exactly the files it lists
URL/others/SHA256.tar          other files of a configuration: logs, benchmarks, copies for reports
URL/names/NAME.json            of a configuration: its names and the generations they point to, all that these were
                               made from, and the tars of the other files, newest first
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tarfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from granularity.base import regular, strict_json
from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.store import place, writer
from granularity.store.artifact import LARGEST, Artifact, content_digest, key_of, parse
from granularity.store.place import MANIFEST, STAMP, STORE

PIECE, LONGEST = 2**20, 2**16  # bytes of a piece, and of the longest header, such as a long name
REMEDY = "delete this file there, and push its results again"
Key = tuple[str, str]  # kind and key


class Header(tarfile.TarInfo):
    """A header in an untrusted archive. tarfile reads long headers into memory, and sparse files can claim any size."""

    @classmethod
    def frombuf(cls, *block: Any) -> tarfile.TarInfo:
        found = super().frombuf(*block)
        if found.type == tarfile.GNUTYPE_SPARSE or not (found.isreg() or 0 <= found.size <= LONGEST):
            raise tarfile.ReadError(f"{found.name}: a sparse file, or a header of {found.size} bytes")
        return found


class Remote:
    """A folder or URL and the files below it; any library error becomes a GranularityError of one line."""

    def __init__(self, url: str):
        import fsspec

        self.url = url.rstrip("/")
        if not self.url:
            raise GranularityError("URL: is empty; name a folder or an address such as s3://bucket/folder")
        with self.told():
            self.system, self.root = fsspec.core.url_to_fs(self.url)

    def names(self, folder: str) -> set[str]:
        with self.told(folder):
            return {PurePosixPath(path).name for path in self.system.find(f"{self.root}/{folder}")}

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Write a file that appears only when complete: renamed in a local folder, committed elsewhere."""
        from fsspec.implementations.local import LocalFileSystem

        path = f"{self.root}/{name}"
        with self.told(name), contextlib.ExitStack() as stack:
            self.system.makedirs(os.path.dirname(path), exist_ok=True)
            if isinstance(self.system, LocalFileSystem):
                temporary = stack.enter_context(place.replacing(Path(path)))
                with temporary.open("wb") as stream:
                    yield stream
                    stream.flush()
                    os.fsync(stream.fileno())
            else:
                stack.enter_context(self.system.transaction)
                yield stack.enter_context(self.system.open(path, "wb"))

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        with self.told(name), self.system.open(f"{self.root}/{name}", "rb") as stream:
            yield stream

    @contextlib.contextmanager
    def told(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except GranularityError:
            raise
        except Exception as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
            raise GranularityError(f"{self.url}{'/' if name else ''}{name}: {reason}") from None


def push(root: Path, url: str) -> str:
    """Copy results at or below a folder, and all that they were made from, to a URL, except those already there."""
    remote, base = Remote(url), _base(root)
    tars, others = remote.names("generations"), remote.names("others")
    tops: dict[str, dict[str, Artifact]] = {}  # configuration -> name -> artifact
    for path in place.find(root):
        name = os.path.relpath(path, base)
        tops.setdefault(PurePosixPath(name).parts[0], {})[name] = Artifact.peek(path)
    if not tops:
        raise GranularityError(f"{root}: there are no results at or below this folder")
    needed = {top: _with_origins(named.values(), (base / STORE).resolve()) for top, named in tops.items()}
    all_of = {key: result for results in needed.values() for key, result in results.items()}
    missing = [result for key, result in sorted(all_of.items()) if _tar(key) not in tars]
    for artifact in track(missing, len(missing), f"sending to {url}", "results"):
        for problem in artifact.corrupt():
            raise GranularityError(f"{problem}; {artifact.remedy}")
        with remote.writing(f"generations/{_tar(_key(artifact))}") as stream:
            _write_tar(stream, artifact.folder, [MANIFEST, *artifact.manifest["files"]])
    for top, named in tops.items():
        files = _send_others(remote, base, base / top, others)  # before the record is read: somebody else may push, too
        nothing = {"names": {}, "generations": [], "others": []}
        before = _names(remote, top) if f"{top}.json" in remote.names("names") else nothing
        if before["names"].keys() <= named.keys():  # nothing there but what this replaces
            before = nothing
        record = {
            "names": before["names"] | {name: _key(result) for name, result in named.items()},
            "generations": sorted({*map(tuple, before["generations"]), *needed[top]}),
            "others": list(dict.fromkeys([files, *before["others"]])),
        }
        with remote.writing(f"names/{top}.json") as stream:
            stream.write(json.dumps(record, indent=1).encode())
    size = sum(result.size for result in missing)
    return f"{len(missing)} results sent, {size / 1e6:.1f} MB; {len(all_of) - len(missing)} were already there"


def pull(root: Path, url: str, kinds: Iterable[str]) -> str:
    """Fetch results of some kinds whose names lie at or below a folder, and those names; return a summary."""
    remote, base, began = Remote(url), _base(root), time.time()
    store, within = base / STORE, PurePosixPath(os.path.relpath(os.path.abspath(root), base))
    found = (name for name in sorted(remote.names("names")) if place.is_plain(name, r"[^.?][^?]*\.json"))
    tops = [name.removesuffix(".json") for name in found]
    records = {top: _names(remote, top, kinds) for top in tops if within.parts[:1] in ((), (top,))}
    if not records:
        raise GranularityError(f"{url}: no results of {root} have been pushed there")
    keys = sorted({tuple(key) for record in records.values() for key in record["generations"]})
    looked = track(keys, len(keys), f"looking for them in {store}", "results")
    missing = [key for key in looked if writer.sound(store, *key) is None]
    for key in track(missing, len(missing), f"receiving from {url}", "results"):
        _receive(remote, store, *key)
    for top, record in records.items():
        for name, key in record["names"].items():
            output, artifact = _inside(base, top, name, url), Artifact.peek(place.generation(store, *key))
            leads = output.resolve() == artifact.folder and artifact.unlike(place.stamp_of(output)) is None
            if PurePosixPath(name).is_relative_to(within) and not leads:
                place.point(output, artifact.folder, artifact.kind, artifact.digest)
                os.utime(place.stamp_of(output), (began, began))  # so that no stamp is newer than those of later stages
        for digest in record["others"]:
            _receive_others(remote, base, top, digest)
    return f"{len(missing)} results received, {len(keys) - len(missing)} were already here"


def _base(root: Path) -> Path:
    """Return the folder of all results, which contains the store."""
    return place.store_of(root / "name").parent


def _key(artifact: Artifact) -> Key:
    return artifact.kind, artifact.manifest["key"]


def _tar(key: Key) -> str:
    return f"{key[0]}-{key[1]}.tar"


def _with_origins(artifacts: Iterable[Artifact], store: Path) -> dict[Key, Artifact]:
    """Return artifacts and all in their store that they were made from, as far as it still exists."""
    found = {_key(one): one for one in artifacts}
    for folder in place.closure(one.folder for one in found.values()):
        with contextlib.suppress(regular.MissingError):
            if folder.is_relative_to(store):  # a manifest may name any folder of this machine
                one = Artifact.peek(folder)
                found[_key(one)] = one
    return found


# ---------------------------------------------------------------- one generation


def _write_tar(stream: IO[bytes], folder: Path, names: Iterable[str]) -> None:
    """Write files as a tar without times, owners or permissions: equal files give equal bytes."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            with (folder / name).open("rb") as source:
                entry.size = os.fstat(source.fileno()).st_size
                tar.addfile(entry, source)


def _receive(remote: Remote, store: Path, kind: str, key: str) -> None:
    """Receive a generation and publish it in the store, or raise GranularityError and leave nothing behind."""
    name = f"generations/{_tar((kind, key))}"
    where = f"{remote.url}/{name}"
    with place.new_folder(store) as folder, remote.reading(name) as stream, _untarred(stream, where) as tar:
        first = tar.next()
        if first is None or first.name != MANIFEST or not first.isreg() or first.size > LARGEST:
            raise tarfile.TarError("does not begin with a manifest")
        text = tar.extractfile(first).read()
        try:
            manifest = parse(text, Path(name))
        except GranularityError:
            raise tarfile.TarError("its manifest is corrupt, or of another version of granularity") from None
        identity = (manifest["kind"], manifest["key"], key_of(manifest), content_digest(manifest))
        if identity != (kind, key, key, manifest["digest"]):
            raise tarfile.TarError("contains another result than its name says")
        (folder / MANIFEST).write_bytes(text)
        files = dict(manifest["files"])
        for entry in iter(tar.next, None):
            about = files.pop(entry.name, None)
            if about is None or not entry.isreg() or entry.issparse() or entry.size != about["bytes"]:
                raise tarfile.TarError(f"{entry.name} is not listed in its manifest")
            if _write(tar.extractfile(entry), place.inside(folder, entry.name, where)) != about["sha256"]:
                raise tarfile.TarError(f"{entry.name} is corrupt (its SHA-256 differs from the manifest)")
        if files:
            raise tarfile.TarError(f"lacks {', '.join(files)}")
        writer.publish(folder, store, manifest)


@contextlib.contextmanager
def _untarred(stream: IO[bytes], where: str) -> Iterator[tarfile.TarFile]:
    """Open a stream as a tar; what is wrong with its bytes becomes a GranularityError that says how to mend it."""
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=Header) as tar:
            yield tar
    except tarfile.TarError as error:
        raise GranularityError(f"{where}: {error}; {REMEDY}") from None


def _write(source: IO[bytes], target: Path) -> str:
    """Write a new file; return its SHA-256."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("xb") as stream:
        while piece := source.read(PIECE):
            digest.update(piece)
            try:
                stream.write(piece)
                stream.flush()
            except OSError as error:  # of this machine's disk: what is received from is not to blame
                raise GranularityError(f"{target}: cannot be written ({error.strerror or error}); free space") from None
    return digest.hexdigest()


# ---------------------------------------------------------------- names, and files beside results


def _names(remote: Remote, top: str, kinds: Iterable[str] = (place.KIND,)) -> dict[str, Any]:
    """Read the names of a configuration; check their form, because they decide where files will lie."""
    name = f"names/{top}.json"
    with remote.reading(name) as stream:
        text = stream.read(LARGEST)
    try:
        said = strict_json.parse_json(text, name)
        said["others"] = [said["others"]] if isinstance(said["others"], str) else said["others"]  # up to 0.2.0
        keys = [*said["names"].values(), *said["generations"]]
        whole = all(place.is_plain("/".join(key), f"({'|'.join(kinds)})/{place.KEY}") for key in keys)
        if whole and all(place.is_plain(digest, place.DIGEST) for digest in said["others"]):
            return said
    except (GranularityError, KeyError, TypeError, AttributeError):
        pass
    raise GranularityError(f"{remote.url}/{name}: is not a list of a configuration's results; {REMEDY}")


def _inside(base: Path, top: str, name: str, url: str) -> Path:
    """Return the path for a result or a file of a configuration. Raise GranularityError if it may not lie there."""
    form = rf"{re.escape(top)}(?s:/.+)?(?<!{re.escape(STAMP)})(?<!/{re.escape(MANIFEST)})"
    return place.inside(base, name, url, form)


def _send_others(remote: Remote, base: Path, top: Path, there: set[str]) -> str:
    """Send the plain files of a configuration as one tar, named by its SHA-256; return that."""
    files: list[Path] = []
    for folder, folders, names in os.walk(top):
        folders[:] = [] if MANIFEST in names else sorted(name for name in folders if not name.startswith("."))
        paths = [] if MANIFEST in names else [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
        files += [file for file in paths if not file.name.endswith(STAMP) and file.is_file() and not file.is_symlink()]
    with place.new_folder(base / STORE) as folder:
        archive = folder / "others.tar"
        with archive.open("wb") as stream:
            _write_tar(stream, base, [file.relative_to(base).as_posix() for file in files])
        with archive.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            if f"{digest}.tar" not in there:
                with remote.writing(f"others/{digest}.tar") as target:
                    shutil.copyfileobj(stream, target)
    return digest


def _receive_others(remote: Remote, base: Path, top: str, digest: str) -> None:
    """Restore the plain files of a configuration; existing files are kept."""
    name = f"others/{digest}.tar"
    where = f"{remote.url}/{name}"
    with place.new_folder(base / STORE) as folder:
        with remote.reading(name) as stream:
            if _write(stream, folder / "others.tar") != digest:
                raise GranularityError(f"{where}: corrupt (its SHA-256 differs from its name); {REMEDY}")
        with remote.told(name), tarfile.open(folder / "others.tar", "r:", tarinfo=Header) as tar:
            for number, entry in enumerate(tar):
                target = _inside(base, top, entry.name, where)
                if not entry.isreg() or entry.issparse():
                    raise GranularityError(f"{where}: {entry.name} is not a regular file")
                if not os.path.lexists(target):
                    _write(tar.extractfile(entry), folder / str(number))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    (folder / str(number)).replace(target)
