"""The verdicts stage: what belongs together is judged, and nothing else."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.stages import verdicts
from granularity.stages.theory.worlds import neural_collapse
from granularity.stages.verdicts import stage
from granularity.store.artifact import Artifact
from granularity.store.task import Task
from support import writing
from support.worlds import judge, train

CODE = ("granularity.stages.samples.stage",)
OWN = '''"""Every finetuned network errs in less than a tenth of the cases."""
from granularity.claims.claim import Claim
EXTENDS = "study"
READS = ("finetune/runs.parquet", "hierarchy/properties.json")
PUBLISHED = ()
def judge(tables):
    for condition, runs in tables["finetune/runs.parquet"].groupby("condition"):
        assert runs["head_alone"].all() and (runs["from_epoch"] == 7).all()
        yield Claim("O1", "It learns", "here", f"{condition}: error", list(runs["val_error"]), high=10)
    straddling = tables["hierarchy/properties.json"]["purity.loops"]
    yield Claim("O2", "Clusters are pure", "here", "purity", list(straddling), kind="identity", low=1)
def figures(tables, folder):
    folder.mkdir(exist_ok=True)
    (folder / "errors.svg").write_text("<svg/>")
'''


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict[str, Path]:
    """Parts of one small world: all of them, and what does not belong to them."""
    where, small = tmp_path_factory.mktemp("trained"), {"per_cluster": 4, "d_in": 6, "hidden": 8}
    arms = [neural_collapse.Settings(**small, name=name, steps=2, seeds=1) for name in "ab"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(neural_collapse.SIZES, "tiny", arms)
        patch.setitem(neural_collapse.SIZES, "other", arms[:1])
        made = {f"{part} of 2": train("neural_collapse", where / str(part), part=part, parts=2) for part in range(2)}
        made["1 of 2, other"] = train("neural_collapse", where / "other", "other", part=1, parts=2)
    return made


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "judged from its trainings; give them"),
        (["0 of 2"], r"was trained in 2 parts, but the given parts are \[0\]"),
        (["0 of 2", "1 of 2, other"], "is needed"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(trained, tmp_path, parts, message):
    with pytest.raises(GranularityError, match=message):
        judge("neural_collapse", [trained[part] for part in parts], tmp_path / "verdicts")
    with pytest.raises(GranularityError, match="is needed"):
        judge("label_granularity", [trained["0 of 2"], trained["1 of 2"]], tmp_path / "verdicts")
    assert not (tmp_path / "verdicts").exists()


def sample_table(folder: Path, train: int) -> Path:
    params = {"source": "digits", "target": "loops"}
    with writing.create(folder / "samples", "samples", CODE, {}, params) as out:
        out.table("samples.parquet", pd.DataFrame({"sample_id": [f"{i}" for i in range(train)]}))
        out.summary |= {"images": {"train": train}, "classes": {"loops": 3}}
    return folder / "samples"


def finetuned(folder: Path, errors: list[float]) -> dict[str, tuple[Path, ...]]:
    samples = Artifact.open(sample_table(folder, 20 + len(errors)))
    params = {"recipe": {"freeze_backbone": True}, "from_epoch": 7}
    with writing.create(folder / "finetune" / "all", "finetune", CODE, {"samples": samples}, params) as out:
        out.table("runs.parquet", pd.DataFrame({"space": "target", "val_error": errors}))
    with writing.create(folder / "hierarchy" / "target", "hierarchy", CODE, {"samples": samples}, {}) as out:
        out.json("properties.json", {"space": "target", "purity": {"loops": 1.0}})
    return {
        "samples": samples.path,
        "finetune": folder / "finetune" / "all",
        "hierarchy": folder / "hierarchy" / "target",
    }


def test_a_study_of_ones_own_reads_results_of_every_condition(tmp_path):
    own = tmp_path / "errors.py"
    own.write_text(OWN)
    made = [
        finetuned(tmp_path / name, errors) for name, errors in (("train-3", [1.0, 2.0]), ("train-4", [3.0, 11.0, 4.0]))
    ]
    inputs = {role: tuple(one[role] for one in made) for role in made[0]}
    extensions.load([own])
    try:
        task = Task(verdicts.STAGE, tmp_path / "verdicts", verdicts.STAGE.model(study="errors"), inputs)
        assert str(own) in task.code
        stage.run(task)
        with pytest.raises(GranularityError, match="'errors' reads results of hierarchy; give them"):
            stage.run(Task(verdicts.STAGE, tmp_path / "x", task.options, inputs | {"hierarchy": ()}))
    finally:
        extensions.load([])
    found = Artifact.open(tmp_path / "verdicts", "verdicts")
    assert found.summary["verdicts"] == {"O1": "fails"} and found.summary["identities"] == {"O2": "holds"}
    table = pd.read_csv(found.path / "checks.csv")
    assert table["quantity"].tolist() == ["train-3: error", "train-4: error", "purity"]
    assert table["verdict"].tolist() == ["holds", "fails", "holds"] and table["in_band"][1] == "2 of 3"
    assert (found.path / "figures" / "errors.svg").is_file()
    assert set(found.manifest["inputs"]) >= {"train-3/samples", "train-4/finetune/all"}


@pytest.mark.parametrize(("unit", "seeds"), [("draw", ["0", "1"]), ("backbone", ["0/7", "1/7"])])
def test_rows_of_a_study_have_their_draw_and_cell_because_draws_and_cells_may_share_names(unit, seeds, tmp_path):
    def source(draw: int, kind: str) -> SimpleNamespace:
        row = {"run": "embedding"} if kind == "values" else {"run_id": "a", "parent": "b", "pretrain_seed": 7}
        table = pd.DataFrame([row])
        facts, summary = {"source": "s", "target": "t"}, {"classes": {"t": 2}, "images": {"train": 9}}
        inputs, place = {"samples": {"digest": "x"}}, tmp_path / f"draw-{draw}" / "train-9" / kind
        more = {"facts": facts, "summary": summary, "manifest": {"inputs": inputs}, "table": lambda file: table}
        return SimpleNamespace(kind=kind, place=place, digest="x", **more)

    kinds = ("samples", "values", "runs")
    sources = {kind: [source(draw, kind) for draw in range(2)] for kind in kinds}
    options = SimpleNamespace(cells={f"draw-{draw}": {"draw": draw} for draw in range(2)}, unit=unit)
    task = SimpleNamespace(options=options, output=tmp_path / "verdicts" / "study")
    found = stage._tables(("values/a", "runs/a"), sources, task)
    assert list(found["values/a"]["draw"]) == list(found["runs/a"]["draw"]) == ["0", "1"]
    assert list(found["runs/a"]["pretrain_seed"]) == seeds
    assert list(found["runs/a"]["run_id"] + found["runs/a"]["parent"]) == ["draw-0/adraw-0/b", "draw-1/adraw-1/b"]
