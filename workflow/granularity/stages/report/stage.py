"""The report: reads every artifact of a run, and writes tables, figures and one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.config.options import Condition, Config
from granularity.plan import jobs as plan
from granularity.stages.report import drawing, figures, montage, tables, verdicts, words
from granularity.stages.report.page import render
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

# What is read of the artifacts' files, see granularity.store.artifacts.KINDS
RUNS = dict.fromkeys(["run_id", "space", "family"], "text") | {"val_error": "number"}
RUNS |= dict.fromkeys(["granularity", "pretrain_seed"], "number?")  # the embedding has none
PROBES = {"probe": "text", "rank": "text"}
PROPERTIES = ["granularity", "images", "empty_classes", "refines_target", "class_size", "starved_share"]
PROPERTIES += ["straddling_share", "purity", "mutual_information_bits", "nmi"]
PUBLISHED = Path(__file__).parents[4] / "config" / "published" / "granularity_t5.csv"


def run(config: Config, output: Path, page: Path, studies: Sequence[Path] = ()) -> None:
    """Write the report of a finished run.

    Args:
        config: the resolved configuration.
        output: the folder of the `report` artifact: `report.html`, `figures/*.svg`, `tables/*.csv` and `*.parquet`.
        page: where a copy of `report.html` goes.
        studies: verdicts to show as well, of images and of the theory's worlds.

    Raises:
        GranularityError: an artifact is missing, corrupt or stale, or lacks runs that the configuration asks for.
    """
    conditions = [load(config, condition) for condition in config.conditions]
    sources = {f"{found.name}/{role}": source for found in conditions for role, source in found.artifacts.items()}
    judged = [Artifact.open(path, "verdicts") for path in studies]
    built = {
        "results": tables.results(conditions),
        "probe": tables.probe(conditions),
        "properties": tables.properties(conditions),
        "cost": tables.cost(sources),
    }
    drawn = {
        "granularity_curve": figures.granularity_curve(built["results"]),
        "differences": figures.differences(built["results"]),
        "probe": figures.probe(built["probe"], conditions[0].probed_ranks),
        "agreement": figures.agreement(built["properties"], conditions[0].shown_ranks),
        "class_sizes": figures.class_sizes(conditions),
    }
    drawn["montage"], montage_of = draw_montage(conditions, config.report.montage_clusters)
    losses = {found.label: found.encoder_history for found in conditions if found.encoder_history is not None}
    if losses:
        drawn["encoder_loss"] = figures.encoder_loss(losses)
    published = {"published": tables.published(PUBLISHED)}
    told = verdicts.read(judged)
    sources |= {f"verdicts/{study.params['study']}": study for study in judged}
    html = render(config, conditions, built | published, drawn, montage_of, sources, told)

    params = config.model_dump(mode="json")
    with artifacts.create(output, "report", "granularity.stages.report.stage", inputs=sources, params=params) as writer:
        writer.text("report.html", html)
        for name, svg in drawn.items():
            writer.path(f"figures/{name}.svg").write_text(svg, encoding="utf-8")
        for name, table in built.items():
            table.to_csv(writer.path(f"tables/{name}.csv"), index=False)
            writer.table(f"tables/{name}.parquet", table)
    page.parent.mkdir(parents=True, exist_ok=True)
    artifacts.write_atomically(page, html.encode())


def load(config: Config, condition: Condition) -> tables.Condition:
    """Open every artifact of a condition, verified, and read the tables that the report needs."""
    place = {"root": plan.root(config), "condition": plan.condition_name(condition)}
    opened: dict[str, Artifact] = {}

    def read(kind: str, **wildcard: str) -> Artifact:
        role = "/".join([kind, *wildcard.values()])
        opened[role] = Artifact.open(plan.PATHS[kind].format(**place, **wildcard), kind)
        return opened[role]

    def runs(kind: str) -> pd.DataFrame:
        jobs = plan.units(config, condition, kind)
        opened_jobs = [read(kind, unit=unit) for unit in jobs]
        for job in opened_jobs:
            job.table("runs.parquet", RUNS | (PROBES if kind == "probe" else {}))
        table = pd.concat([job.table("runs.parquet") for job in opened_jobs], ignore_index=True)
        expected = {run.id for job in jobs.values() for run in job}
        if missing := expected - set(table["run_id"]):
            where = Path(place["root"]) / place["condition"] / kind
            raise GranularityError(f"{where}: lacks runs that the configuration asks for: {sorted(missing)}")
        return table

    spaces = plan.spaces(config, condition)
    samples = read("samples")
    read("pixels")
    history = read("encoder").table("history.parquet") if config.encoder.trained_here else None
    read("embedding")
    for clustering in plan.clusterings(spaces):
        read("clusters", clustering=clustering)
    made = {space.name: read("label_space", space=space.name) for space in spaces}
    pretrain, finetune, probe = runs("pretrain"), runs("finetune"), runs("probe")
    table = samples.table("samples.parquet")
    return tables.Condition(
        name=place["condition"],
        label=words.count(int((table["split"] == "train").sum()), "training image"),
        ranks=config.samples.ranks,
        target=config.samples.target,
        spaces=spaces,
        samples=table,
        properties={name: space.json("properties.json", *PROPERTIES) for name, space in made.items()},
        classes={name: space.table("classes.parquet") for name, space in made.items()},
        pretrain=pretrain,
        finetune=finetune,
        probe=probe,
        encoder_history=history,
        artifacts=opened,
    )


def draw_montage(conditions: list[tables.Condition], count: int) -> tuple[str, str | None]:
    """The montage, and what it shows in words; a figure that says why, and None, where there is nothing to show."""
    chosen = montage.choose(conditions)
    found = montage.rows(*chosen, count) if chosen and count else []
    if not found:
        return drawing.nothing("montage", "No clusters to show."), None
    condition, space = chosen
    pixels: np.ndarray = condition.artifacts["pixels"].array("pixels.npy")
    return montage.draw(found, pixels), f"{space.name} ({condition.label})"
