"""The whole chain on images that are kept as JPEG, by the commands that the rules run."""

import contextlib

import pytest

from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.data.shards import Shards
from granularity.stages.pixels import stage as pixels
from granularity.store.artifact import Artifact
from support import tiny_chain
from support.tiny_chain import TINY, harmed


@pytest.mark.workflow
def test_a_chain_on_shards(tmp_path, monkeypatch):
    """Every stage runs, the report shows clusters, and a damaged shard is a line until its job is run again."""
    monkeypatch.setattr(pixels, "SHARD_BYTES", 10_000)
    over = {
        "pixels": {"size": 8, "mode": "L", "format": "jpeg"},
        "pretrain": TINY["pretrain"] | {"augment": {"crop": 7}},
    }
    with contextlib.chdir(tmp_path):
        steps = tiny_chain.steps(Config.model_validate(TINY | over))
        for step in steps:
            step.run()
        by_kind = {step.kind: step for step in steps}
        assert {"pretrain", "finetune", "measure", "report"} <= by_kind.keys()
        assert (by_kind["report"].folder / "figures/montage.svg").is_file()
        made = by_kind["pixels"]
        shards = Shards(Artifact.open(made.folder))
        assert len(shards) == 90
        assert len({*shards._file}) > 1
        digest = Artifact.open(made.folder).digest
        with harmed(made.folder):
            (made.folder / "shards/00001.jpegs").write_bytes(b"")
            with pytest.raises(GranularityError, match=r"00001\.jpegs: corrupt .*delete .*pixels\.stamp"):
                by_kind["pretrain"].run(tmp_path / "elsewhere/out")
        store = made.folder.resolve()
        (store / "shards/00001.jpegs").chmod(0o644)
        data = bytearray((store / "shards/00001.jpegs").read_bytes())
        data[99] ^= 1
        (store / "shards/00001.jpegs").write_bytes(data)
        with pytest.raises(GranularityError, match=r"00001\.jpegs: the image of row .*delete .*pixels\.stamp"):
            by_kind["pretrain"].run(tmp_path / "elsewhere/out")
        made.run()  # as snakemake does where the stamp is gone
        assert Artifact.open(made.folder).digest == digest
        by_kind["pretrain"].run(tmp_path / "elsewhere/out")
        same = Artifact.open(by_kind["pretrain"].folder)
        assert Artifact.open(tmp_path / "elsewhere/out").digest == same.digest
