"""Results carried away and back: whole, once, and with nothing that a stranger would slip in."""

import io
import json
import re
import shutil
import sys
import tarfile

import pytest

from granularity import cli
from granularity.base import strict_json
from granularity.base.errors import GranularityError
from granularity.store import artifact
from support import tiny_chain
from support.checkout import Checkout
from support.stores import leftovers, made_in, stamps_in

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def away(tiny, tmp_path_factory):
    """A folder to which the tiny run was pushed."""
    folder = tmp_path_factory.mktemp("pushed") / "away"
    assert "; 0 were already there" in tiny.run("granularity", "push", "results", str(folder))
    return folder


@pytest.fixture
def pushed(away, tmp_path):
    """A copy of it, which a test may change."""
    return shutil.copytree(away, tmp_path / "away")


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    made = Checkout(tmp_path / "elsewhere")
    tiny_chain.configure(made)
    return made


def everything(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_was_pushed_comes_back_whole_and_snakemake_has_nothing_to_do(tiny, pushed, empty):
    """Also in two parts, as after a kill: what exists already is neither sent nor received again."""
    last = max((pushed / "generations").iterdir())
    last.rename(pushed / "kept")
    assert last.name in empty.run("granularity", "pull", "results", str(pushed), code=1)
    assert stamps_in(empty.path("results")) == {} and made_in(empty.path("results"))
    (pushed / "kept").rename(last)
    said = empty.run("granularity", "pull", "results", f"file://{pushed}")
    assert not said.startswith("0 results received") and "; 0 were already here" not in said
    source, target = tiny.path("results"), empty.path("results")
    assert (stamps_in(target), made_in(target)) == (stamps_in(source), made_in(source))
    assert "all sound" in empty.run("granularity", "verify", "results")
    assert "Nothing to be done" in empty.snakemake("-n", "--configfile", "tiny.yaml")
    before = everything(pushed)
    assert "0 results sent" in empty.run("granularity", "push", "results/tiny", str(pushed))
    assert everything(pushed) >= before and leftovers(target) == []
    assert "0 results received" in empty.run("granularity", "pull", "results/tiny", str(pushed))
    assert "Nothing to be done" in empty.snakemake("-n", "--configfile", "tiny.yaml")


def changed(file, change):
    """Write a tar anew, with its entries and their bytes as `change` returns them."""
    with tarfile.open(file) as tar:
        entries = [(entry, tar.extractfile(entry).read()) for entry in tar]
    with tarfile.open(file, "w") as tar:
        for entry, content in change(entries):
            entry.size = len(content) if entry.isreg() else 0
            tar.addfile(entry, io.BytesIO(content))


def entry(name, **said):
    made = tarfile.TarInfo(name)
    for key, value in said.items():
        setattr(made, key, value)
    return made, b"x"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda entries: [*entries, entry("../../../outside")], "../../../outside is not listed in its manifest"),
        (
            lambda entries: [entries[0], entry(entries[1][0].name, type=tarfile.SYMTYPE, linkname="/etc/passwd")],
            "is not listed in its manifest",
        ),
        (lambda entries: [entries[0], (entries[1][0], entries[1][1][::-1]), *entries[2:]], "is corrupt"),
        (lambda entries: entries[1:], "does not begin with a manifest"),
        (lambda entries: entries[:-1], "lacks"),
    ],
    ids=["above", "link", "bytes", "no-manifest", "half"],
)
def test_a_result_that_is_not_what_its_manifest_says_does_not_enter_the_store(pushed, tmp_path, change, said):
    file = next((pushed / "generations").glob("embed-*.tar"))
    changed(file, change)
    results = tmp_path / "elsewhere/results"
    with pytest.raises(GranularityError, match=f"{re.escape(said)}.*; delete this file there, and push"):
        cli.app(["pull", str(results), str(pushed)], standalone_mode=False)
    kinds = {name.split("/")[0] for name in made_in(results)}
    assert "embed" not in kinds and leftovers(results) == [] and not list(tmp_path.rglob("outside"))


def test_a_damaged_single_run_is_named_with_what_mends_it(tiny, empty, tmp_path):
    """No name leads to it: there is no stamp to delete."""
    shutil.copytree(tiny.path("results"), empty.path("results"), symlinks=True)
    run = next(empty.path("results/.store/run").iterdir())
    said = (run / "run.json").read_bytes()
    (run / "run.json").unlink()
    (run / "run.json").write_bytes(said[:-2] + b" \n")
    output = empty.run("granularity", "push", "results", str(tmp_path / "away"), code=1)
    assert f"{run}/run.json: corrupt" in output and f"delete the folder {run}; what needs it" in output
    shutil.rmtree(run)
    empty.run("granularity", "push", "results", str(tmp_path / "away"))


def rerun(checkout, remote, **changes):
    """Change the configuration, run its first stages again, and push."""
    tiny_chain.configure(checkout, **changes)
    checkout.snakemake("samples", "--configfile", "tiny.yaml")
    return checkout.run("granularity", "push", "results", str(remote))


def test_two_machines_push_one_configuration_and_what_is_replaced_is_not_kept(empty, tmp_path):
    """Names and plain files of both stay, until one has them all; files that are none of ours do not matter."""
    remote = tmp_path / "away"
    (remote / "names").mkdir(parents=True)
    (remote / "names/.DS_Store").touch()
    rerun(empty, remote)
    record = json.loads((remote / "names/tiny.json").read_text())
    other = record | {"names": {"tiny/other": record["names"]["tiny/train-60/samples"]}, "others": ["0" * 64]}
    (remote / "names/tiny.json").write_text(json.dumps(other))
    rerun(empty, remote)
    both = json.loads((remote / "names/tiny.json").read_text())
    assert both["names"].keys() == {"tiny/other", "tiny/train-60/samples"} and both["others"][1] == "0" * 64
    (remote / "names/tiny.json").write_text(json.dumps(record))
    rerun(empty, remote, seeds=tiny_chain.TINY["seeds"] | {"base": 7})
    after = json.loads((remote / "names/tiny.json").read_text())
    assert len(after["generations"]) == 1 and after["generations"] != record["generations"]
    assert "1 results received" in empty.run("granularity", "pull", str(tmp_path / "there/results"), str(remote))
    (remote / "names/tiny.json").write_text("{}")
    output = empty.run("granularity", "pull", "results", str(remote), code=1)
    assert "tiny.json: is not a list" in output and "push its results again" in output


def test_what_another_version_made_stays_where_it_is(pushed, empty):
    empty.run("granularity", "pull", "results", str(pushed))
    file = next(empty.path("results/.store/samples").glob("*/manifest.json"))
    said = strict_json.read_json(file)
    del said["seal"]
    file.chmod(0o644)
    file.write_text(artifact.as_text(said | {"schema_version": 0}))
    before = everything(empty.path("results"))
    output = empty.run("granularity", "pull", "results", str(pushed), code=1)
    assert "schema_version 0" in output and everything(empty.path("results")) == before


def test_a_full_disk_is_not_the_fault_of_the_other_place(pushed, empty):
    pull = f"ulimit -f 20; {sys.executable} -m granularity pull results {pushed}"
    output = empty.run("bash", "-c", pull, code=1)
    assert re.search(r"results/\.store/\.new/\S+: cannot be written \(File too large\); free space", output)
    assert leftovers(empty.path("results")) == []


def test_a_place_that_cannot_be_reached_is_one_line(empty):
    for url, said in (
        ("s3://bucket/x", "Install s3fs"),
        ("odd://x", "Protocol not known"),
        ("nowhere", "no results of"),
        ("/", "is empty; name a folder"),
    ):
        output = empty.run("granularity", "pull", "results", url, code=1).strip()
        assert said in output and len(output.splitlines()) == 1, output
