"""Two finetuned arms or runs, image by image: which images one of them gets right alone (`granularity compare`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base.errors import GranularityError
from granularity.learning.runs import Run
from granularity.look.items import trained
from granularity.look.text import as_csv, frame_text, table_of
from granularity.store.artifact import Artifact

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

BOTH = ("both_right", "only_a_right", "only_b_right", "both_wrong")
SHOWN = 10  # images of each kind


@dataclass
class Arm:
    """What was asked for, in one folder of finetunings: its runs, each with the artifact that holds it."""

    asked: str
    folder: Path  # results/NAME/CONDITION/finetune/TRANSFER/NETWORK
    runs: list[tuple[Run, Artifact]] = field(default_factory=list)

    @property
    def is_run(self) -> bool:
        return self.asked in {name for run, _ in self.runs for name in (run.id, run.name)}


def compare(a: str, b: str, root: Path) -> dict[str, Any]:
    """Compare two arms: each a label space, or a run of a finetuning by its id or name.

    Returns `a`, `b`, where they are (`folders`), `images`, `pairs`, `backbones`, `errors` (percent), the four numbers
    of :data:`BOTH` and `table`, a row per validation image: `sample_id`, `file`, `class`, `a_says` and `b_says` (the
    most frequent predictions), and the numbers of backbones in each of the four cases. Runs are paired by their seeds,
    and runs of one backbone count as one together. A GranularityError: they cannot be compared.
    """
    import pandas as pd

    first, second = _only_pair(_arms(a, root), _arms(b, root), root)
    images = [_images(arm) for arm in (first, second)]
    pairs = _paired(first, second)
    one, names = _predictions(first, [pair[0] for pair in pairs])
    two, others = _predictions(second, [pair[1] for pair in pairs])
    if not images[0].equals(images[1]) or names != others:
        raise GranularityError(f"{a}, {b}: were validated on different images, or against other classes")
    own = pd.Index(names).get_indexer(images[0]["class"])[:, None]
    seeds = pd.Series([pair[0].pretrain_seed for pair in pairs])
    weight = (1 / seeds.map(seeds.value_counts())).to_numpy()  # of the runs of one backbone, one together
    a_right, b_right = one == own, two == own
    cases = (a_right & b_right, a_right & ~b_right, ~a_right & b_right, ~(a_right | b_right))
    table = images[0].assign(a_says=_most_frequent(one, names), b_says=_most_frequent(two, names))
    table = table.assign(**{name: case @ weight for name, case in zip(BOTH, cases, strict=True)})
    backbones = int(seeds.nunique())
    found = {name: float(table[name].sum() / backbones) for name in BOTH}
    errors = {"a": found["only_b_right"] + found["both_wrong"], "b": found["only_a_right"] + found["both_wrong"]}
    errors = {name: 100 * count / len(table) for name, count in errors.items()}
    about = {"a": a, "b": b, "folders": [str(first.folder), str(second.folder)], "images": len(table)}
    return about | {"pairs": len(pairs), "backbones": backbones, "errors": errors, **found, "table": table.round(6)}


def as_text(found: dict[str, Any], rows: int | None, width: int | None) -> str:
    """The four numbers, and the images that most backbones get right with one arm and wrong with the other."""
    a, b, folders = found["a"], found["b"], list(dict.fromkeys(found["folders"]))
    right, wrong = ([f"{found[name]:.1f}" for name in names] for names in (BOTH[:2], BOTH[2:]))
    cells = [["", "B right", "B wrong"], ["A right", *right], ["A wrong", *wrong]]
    lines = [f"A = {a}, B = {b}, in {' and '.join(folders)}"]
    lines.append(f"{found['images']} validation images, mean over {found['backbones']} paired backbones")
    lines += ["", *table_of(cells, 1), ""]
    lines.append(f"error: A {found['errors']['a']:.2f} %, B {found['errors']['b']:.2f} %")
    for column, good, bad in ((BOTH[2], f"B ({b})", f"A ({a})"), (BOTH[1], f"A ({a})", f"B ({b})")):
        table = most(found, column)
        shown = table.head(SHOWN if rows is None else rows)
        count = f"{len(shown)} of {len(table)} images, by backbones of {found['backbones']}"
        lines += ["", f"right with {good}, wrong with {bad}: {count}"]
        named = {"a_says": "A says", "b_says": "B says", column: "backbones"}
        shown = shown.drop(columns=[name for name in BOTH if name != column]).rename(columns=named)
        lines += [frame_text(shown, width, index=False)] if len(shown) else []
    return "\n".join(lines)


def most(found: dict[str, Any], column: str) -> pd.DataFrame:
    """The images of one case, those of most backbones first."""
    table = found["table"]
    return table[table[column] > 0].sort_values(column, ascending=False, kind="stable")


def as_json(found: dict[str, Any], rows: int | None) -> str:
    lists = {name: json.loads(most(found, name).head(rows).to_json(orient="records")) for name in (BOTH[2], BOTH[1])}
    return json.dumps({**{key: value for key, value in found.items() if key != "table"}, "most": lists}, indent=2)


def as_rows(found: dict[str, Any], rows: int | None) -> str:
    """A row per validation image as CSV, those first that B gets right and A wrong."""
    table = found["table"].sort_values([BOTH[2], BOTH[1]], ascending=[False, True], kind="stable")
    return as_csv(table if rows is None else table.head(rows))


# ---------------------------------------------------------------- what is compared


def _arms(asked: str, root: Path) -> list[Arm]:
    """Where there are finetunings of a label space, or one of a name or an id."""
    found: dict[Path, Arm] = {}
    spaces: set[str] = set()
    for artifact, runs in trained(root, "finetune"):
        folder = artifact.path.parent
        spaces |= {run.space for run in runs}
        for run in runs:
            if asked in (run.space, run.id, run.name):
                found.setdefault(folder, Arm(asked, folder)).runs.append((run, artifact))
    if not spaces:
        raise GranularityError(f"{root}: holds no finetuned runs; make them with: snakemake finetune")
    if not found:
        known = ", ".join(sorted(spaces))
        raise GranularityError(f"{root}: has no finetuned run or label space '{asked}'; its label spaces are {known}")
    return list(found.values())


def _only_pair(first: list[Arm], second: list[Arm], root: Path) -> tuple[Arm, Arm]:
    every = [(one, other) for one in first for other in second]
    pairs = [pair for pair in every if pair[0].folder == pair[1].folder] or every
    if len(pairs) > 1:
        folders = ", ".join(dict.fromkeys(str(arm.folder) for pair in pairs for arm in pair))
        raise GranularityError(f"{root}: has them in several folders; name one of {folders}")
    return pairs[0]


def _paired(first: Arm, second: Arm) -> list[tuple[Run, Run]]:
    if first.is_run and second.is_run:
        return [(first.runs[0][0], second.runs[0][0])]
    others = {(run.pretrain_seed, run.finetune_seed): run for run, _ in second.runs}
    pairs = [(run, others.get((run.pretrain_seed, run.finetune_seed))) for run, _ in first.runs]
    if found := [pair for pair in pairs if pair[1] is not None]:
        return found
    raise GranularityError(f"{first.asked}, {second.asked}: have no runs of the same seeds, and cannot be paired")


def _images(arm: Arm) -> pd.DataFrame:
    """The validation images of an arm: `sample_id`, `file`, where one is known, and `class`, the target."""
    artifact = Artifact.open(arm.runs[0][1].path, "finetune")
    if (samples := artifact.lineage().get("samples")) is None:
        raise GranularityError(f"{artifact.path}: the sample table that it was made from is gone; run snakemake again")
    target, samples = artifact.params["target"], Artifact.open(samples.folder, "samples")
    columns = samples.manifest["files"]["samples.parquet"]["columns"]
    table = samples.table("samples.parquet", ["sample_id", *(c for c in ("file", "row") if c in columns), target])
    own = artifact.table("predictions.parquet", ["sample_id"])
    table = own.merge(table, on="sample_id", how="left", validate="one_to_one")
    if table[target].isna().any():
        raise GranularityError(f"{artifact.path}: predictions.parquet has images that are not in {samples.path}")
    if "row" in table:
        in_it = table["file"].astype("str") + ", row " + table["row"].astype("Int64").astype("str")
        table["file"] = in_it.where(table["row"].notna(), table["file"])
    kept = [name for name in ("sample_id", "file") if name in table]
    return table[[*kept, target]].astype("str").rename(columns={target: "class"})


def _predictions(arm: Arm, runs: list[Run]) -> tuple[np.ndarray, list[str]]:
    """What some runs predict, int [images, runs], and the names of the classes."""
    import numpy as np

    held = {run.id: artifact.path for run, artifact in arm.runs}
    opened = {path: Artifact.open(path, "finetune") for path in dict.fromkeys(held[run.id] for run in runs)}
    classes = [one.table("classes.parquet", ["label", "name"]).sort_values("label") for one in opened.values()]
    names = [table["name"].tolist() for table in classes]
    tables = {path: one.table("predictions.parquet").set_index("sample_id") for path, one in opened.items()}
    first = next(iter(tables.values()))
    if any(one != names[0] for one in names) or any(not one.index.equals(first.index) for one in tables.values()):
        raise GranularityError(f"{arm.folder}: runs of {arm.asked} were validated on different images, or classes")
    if missing := [run.name for run in runs if run.id not in tables[held[run.id]]]:
        raise GranularityError(f"{arm.folder}: predictions.parquet lacks {missing[0]}; make it again")
    return np.stack([tables[held[run.id]][run.id].to_numpy() for run in runs], axis=1), names[0]


def _most_frequent(predicted: np.ndarray, names: list[str]) -> list[str]:
    import numpy as np

    counts = np.stack([(predicted == label).sum(axis=1) for label in range(len(names))])
    return [names[label] for label in counts.argmax(axis=0)]
