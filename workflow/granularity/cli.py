"""The command `granularity`: one subcommand a stage, and inspect, verify and config.

Every rule of the workflow is one of these commands, which `snakemake -np` prints and which runs alone. A stage's
options come as JSON (`--params`), the section of the configuration as resolved; keys left out take their defaults.
Nothing heavy is imported before a stage runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from granularity.base import interrupt, strict_yaml
from granularity.base.errors import GranularityError, printable
from granularity.base.progress import say
from granularity.config import files as config_files
from granularity.config import options as cfg
from granularity.plan import jobs as plan
from granularity.learning.runs import Run
from granularity.store.code import code_digest

app = typer.Typer(
    name="granularity",
    help="How does the granularity of pretraining labels decide what a network learns?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

STAGE = "Stages, as the data flows"
THEORY = "Theory simulations"
LOOK = "Looking at results"
SamplesIn = Annotated[Path, typer.Option("--samples", help="Artifact of stage samples.", show_default=False)]
PixelsIn = Annotated[Path, typer.Option("--pixels", help="Artifact of stage pixels.", show_default=False)]
EmbeddingIn = Annotated[Path, typer.Option("--embedding", help="Artifact of stage embed.", show_default=False)]
PretrainIn = Annotated[list[Path], typer.Option("--pretrain", help="Artifacts of stage pretrain.", show_default=False)]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the artifact to make.", show_default=False)]
Params = Annotated[str, typer.Option(help="This stage's options, as JSON.")]
Seed = Annotated[int, typer.Option(help="Base seed.", min=0)]
Threads = Annotated[int, typer.Option(help="CPU threads.", min=1)]
Chunk = Annotated[int, typer.Option(help="Images between two saves of the work so far.", min=1)]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda (never a silent fallback).")]
Files = Annotated[list[Path], typer.Option("--file", "-f", help="Configuration files; later ones win.")]
MAKES = {"embed": "embedding", "cluster": "clusters", "hierarchy": "label_space"} | {
    stage: stage for stage in ("samples", "pixels", "encoder", "pretrain", "finetune", "probe", "report")
}
DEFAULT_FILES = [Path("config/config.yaml")]
Runs = Annotated[str, typer.Option(help="Names of the runs of this job, separated by commas.", show_default=False)]


@app.command(rich_help_panel=STAGE)
def samples(
    output: Output,
    params: Params = "{}",
    train_size: Annotated[str, typer.Option(help="Training images, or 'all'.")] = "all",
    seed: Seed = 0,
    threads: Threads = 1,
    check_images: Annotated[
        bool,
        typer.Option(
            "--check-images",
            help="Decode every image and name what is odd or broken; a broken one is an "
            "error unless the parameter check_images is 'skip'.",
        ),
    ] = False,
) -> None:
    """Make the sample table: which images there are, their split and their human labels."""
    from granularity.stages.samples import stage

    size = int(train_size) if re.fullmatch("[0-9]{1,12}", train_size) else train_size
    condition = _parse(cfg.Condition, json.dumps({"train_size": size}), "--train-size")
    options = _parse(cfg.Samples, params)
    if check_images and options.check_images == "no":
        options = options.model_copy(update={"check_images": "fail"})
    stage.run(options, condition, seed, output, threads, check_images)


@app.command(rich_help_panel=STAGE)
def pixels(
    output: Output, samples: SamplesIn, params: Params = "{}", threads: Threads = 1, chunk: Chunk = 4096
) -> None:
    """Decode every image once, to the square that training reads."""
    from granularity.stages.pixels import stage

    stage.run(_parse(cfg.Pixels, params), samples, output, threads, chunk)


@app.command(rich_help_panel=STAGE)
def encoder(
    output: Output,
    samples: SamplesIn,
    params: Params = "{}",
    seed: Seed = 0,
    device: DeviceOption = "auto",
    threads: Threads = 1,
) -> None:
    """Train a small CLIP model on captions of the training split (where no published weights are named)."""
    from granularity.stages.encoder import stage

    stage.run(_parse(cfg.Encoder, params), seed, samples, output, _device(device), threads)


@app.command(rich_help_panel=STAGE)
def embed(
    output: Output,
    samples: SamplesIn,
    encoder: Annotated[Path | None, typer.Option(help="Artifact of stage encoder, if it was trained here.")] = None,
    params: Params = "{}",
    device: DeviceOption = "auto",
    threads: Threads = 1,
    chunk: Chunk = 1024,
) -> None:
    """Embed every image with CLIP."""
    from granularity.stages.embed import stage

    stage.run(_parse(cfg.Encoder, params), samples, encoder, output, _device(device), threads, chunk)


@app.command(rich_help_panel=STAGE)
def cluster(
    output: Output,
    samples: SamplesIn,
    embedding: EmbeddingIn,
    clustering: Annotated[str, typer.Option(help="whole-K, or superclass-C.", show_default=False)],
    params: Params = "{}",
    seed: Seed = 0,
    device: DeviceOption = "auto",
    threads: Threads = 1,
) -> None:
    """Cluster the training images with FAISS k-means."""
    from granularity.stages.cluster import stage

    stage.run(_parse(cfg.Cluster, params), clustering, seed, samples, embedding, output, _device(device), threads)


@app.command(rich_help_panel=STAGE)
def hierarchy(
    output: Output,
    samples: SamplesIn,
    space: Annotated[str, typer.Option(help="Name of the label space.", show_default=False)],
    family: Annotated[str, typer.Option(help="Its family.", show_default=False)],
    clusters: Annotated[list[Path], typer.Option(help="Artifacts of stage cluster.", show_default=False)] = [],  # noqa: B006
    params: Params = "{}",
    seed: Seed = 0,
) -> None:
    """Make a label space: a label for every training image, its classes and their properties."""
    from granularity.stages.hierarchy import stage

    stage.run(space, family, _json(params), seed, samples, clusters, output)


@app.command(rich_help_panel=STAGE)
def pretrain(
    output: Output,
    samples: SamplesIn,
    pixels: PixelsIn,
    label_space: Annotated[list[Path], typer.Option(help="Artifacts of stage hierarchy.", show_default=False)],
    runs: Runs,
    recipe: Annotated[str, typer.Option(help="The recipe, as JSON.")] = "{}",
    model: Annotated[str, typer.Option(help="The network, as JSON.")] = "{}",
    seed: Seed = 0,
    device: DeviceOption = "auto",
    threads: Threads = 1,
) -> None:
    """Pretrain networks on label spaces."""
    from granularity.stages import pretrain as stage

    stage.run(
        _parse(cfg.Recipe, recipe, "--recipe"),
        _parse(cfg.Model, model, "--model"),
        _runs(runs),
        seed,
        samples,
        pixels,
        label_space,
        output,
        _device(device),
        threads,
    )


@app.command(rich_help_panel=STAGE)
def finetune(
    output: Output,
    samples: SamplesIn,
    pixels: PixelsIn,
    pretrain: PretrainIn,
    runs: Runs,
    recipe: Annotated[str, typer.Option(help="The recipe, as JSON.")] = "{}",
    seed: Seed = 0,
    device: DeviceOption = "auto",
    threads: Threads = 1,
) -> None:
    """Finetune pretrained networks on the target."""
    from granularity.stages import finetune as stage

    options = _parse(cfg.Recipe, recipe, "--recipe")
    stage.run(options, _runs(runs), seed, samples, pixels, pretrain, output, _device(device), threads)


@app.command(rich_help_panel=STAGE)
def probe(
    output: Output,
    samples: SamplesIn,
    pixels: PixelsIn,
    embedding: EmbeddingIn,
    pretrain: PretrainIn,
    runs: Runs,
    params: Params = "{}",
    augment: Annotated[str, typer.Option(help="The pretraining's augmentation, as JSON.")] = "{}",
    seed: Seed = 0,
    device: DeviceOption = "auto",
    threads: Threads = 1,
) -> None:
    """Probe frozen backbones: logistic regression and nearest neighbours."""
    from granularity.stages import probe as stage

    options = _parse(cfg.Probe, params), _parse(cfg.Augment, augment, "--augment")
    stage.run(*options, _runs(runs), seed, samples, pixels, embedding, pretrain, output, _device(device), threads)


World = Annotated[str, typer.Argument(help="Name of the world.", show_default=False)]
Size = Annotated[str, typer.Option(help="quick, or paper (the paper's own dimensions, sweeps and seeds).")]


@app.command(rich_help_panel=THEORY)
def theory_runs(
    world: World,
    output: Output,
    size: Size = "quick",
    part: Annotated[int, typer.Option(help="Which part of the trainings, from 0.", min=0)] = 0,
    parts: Annotated[int, typer.Option(help="How many parts there are; changes no result.", min=1)] = 1,
    device: DeviceOption = "auto",
    threads: Threads = 1,
) -> None:
    """Train a two-layer world, or one part of it."""
    from granularity.stages.theory import stage

    stage.run_part(world, size, part, parts, output, _device(device), threads)


@app.command(rich_help_panel=THEORY)
def theory(
    world: World,
    output: Output,
    runs: Annotated[list[Path], typer.Option(help="Artifacts of theory-runs, all parts.", show_default=False)],
    size: Size = "quick",
) -> None:
    """Judge every claim about a trained world, and draw its figures."""
    from granularity.stages.theory import stage

    stage.run(world, size, runs, output)


@app.command(rich_help_panel=THEORY)
def simulate(
    world: World,
    settings: Annotated[list[str], typer.Option("--set", help="KEY=VALUE over the setting's defaults.")] = [],  # noqa: B006
    device: DeviceOption = "auto",
) -> None:
    """Train one setting of a world alone and print its measures."""
    from granularity.stages.theory import stage

    pairs = [text.partition("=") for text in settings]
    for key, equals, _ in pairs:
        if not equals:
            raise GranularityError(f"--set {key}: must be KEY=VALUE")
    stage.simulate(world, {key: value for key, _, value in pairs}, _device(device))


@app.command(rich_help_panel=STAGE)
def report(
    output: Output,
    page: Annotated[Path, typer.Option(help="Where to put the page as well.", show_default=False)],
    theory: Annotated[list[str], typer.Option(help="Artifacts of theory, as FOLDER or FOLDER@DIGEST.")] = [],  # noqa: B006
    params: Params = "{}",
) -> None:
    """Make tables, figures and the HTML page from everything above (found under results/NAME/)."""
    from granularity.stages.report import stage

    worlds = [Path(name.partition("@")[0]) for name in theory]
    stage.run(_parse(cfg.Config, params), output, page, worlds)


@app.command(rich_help_panel=LOOK)
def inspect(
    path: Annotated[Path, typer.Argument(help="An artifact's folder or manifest, or a folder of artifacts.")],
    as_json: Annotated[bool, typer.Option("--json", help="For a program.")] = False,
) -> None:
    """Show an artifact: what it is, how it was made, what it holds, and its lineage up to the raw images."""
    from granularity.look import inspection

    _show(inspection.as_json(path) if as_json else inspection.describe(path))


@app.command(rich_help_panel=LOOK)
def verify(
    path: Annotated[Path, typer.Argument(help="A folder of artifacts, such as results/.")],
    as_json: Annotated[bool, typer.Option("--json", help="For a program.")] = False,
) -> None:
    """Hash every artifact again; name what is corrupt or stale, and exit with status 1 if anything is."""
    from granularity.look import inspection

    result = inspection.verify(path)
    _show(json.dumps(result, indent=2) if as_json else inspection.describe_verification(result))
    if result["problems"]:
        raise typer.Exit(1)


@app.command(rich_help_panel=LOOK)
def status(
    files: Files = DEFAULT_FILES,
    as_json: Annotated[bool, typer.Option("--json", help="For a program.")] = False,
) -> None:
    """How far a configuration is: jobs done, running, failed and waiting, and what each stage cost.

    Reads manifests, claims and logs and writes nothing, so it may be asked while jobs run. Done means that a whole
    result of the present code, inputs and parameters is there, by its files' sizes (`granularity verify` hashes
    them). Failed means no result and an error in the log, interrupted that a job was killed without one, outdated
    that Snakemake would make a result again. A job that is queued or only starting counts as waiting.

    Exits with status 1 if a job failed.
    """
    from granularity.look import status as found
    from granularity.look import status_table

    config = config_files.load(*files)
    jobs = found.look(config)
    print(status_table.as_json(config, jobs) if as_json else status_table.describe(jobs))
    if any(job.state == "failed" for job in jobs):
        raise typer.Exit(1)


@app.command(rich_help_panel=LOOK)
def spaces(
    path: Annotated[Path, typer.Argument(help="A folder of results, such as results/digits.")],
    files: Files = DEFAULT_FILES,
    as_json: Annotated[bool, typer.Option("--json", help="For a program.")] = False,
) -> None:
    """Compare label spaces before training on them: size, balance, agreement with the human labels, cost.

    The network whose cost is estimated is the configuration's (--file). Exits with status 1 if a check fails.
    """
    from granularity.look import spaces as comparison

    found = comparison.compare(path, config_files.load(*files))
    _show(json.dumps(found, indent=2) if as_json else comparison.describe(found))
    if any(check["verdict"] == "FAILS" for condition in found for check in condition["checks"]):
        raise typer.Exit(1)


@app.command(rich_help_panel=LOOK)
def wordnet(
    synsets: Annotated[
        Path | None, typer.Argument(help="A list of synsets, one a line. Left out: the 21,843 of ImageNet-21k.")
    ] = None,
    folder: Annotated[Path, typer.Option("--dict", help="Folder with WordNet 3.0's data.noun.")] = Path(
        "/usr/share/wordnet"
    ),
) -> None:
    """Count the classes of some synsets at each WordNet level, beside the published counts."""
    from granularity.data.wordnet import WordNet
    from granularity.look import label_checks

    labels = label_checks.imagenet21k_synsets() if synsets is None else label_checks.read_synsets(synsets)
    graph = WordNet.read(folder).above(labels)
    counts = label_checks.level_counts(graph, labels)
    living = sum(map(graph.is_living, labels))
    print(f"{len(labels)} labels, {len(graph.parents)} synsets above them, {living} living things")
    verdicts = (
        {check.what.rsplit(" ", 1)[1]: check for check in label_checks.level_checks(counts)} if synsets is None else {}
    )
    words = {("L1", "holds"): "as published", ("L2", "holds"): "as derived"}
    for row in counts.itertuples():
        check = verdicts.get(str(row.level))
        note = (
            ""
            if check is None
            else f"  {check.id} " + words.get((check.id, check.verdict), f"FAILS, expected {check.expected}")
        )
        print(f"level {row.level:2d}: G = {row.granularity:6d}, {row.several} labels with several{note}")
    roots = [graph.label(label) for label in labels if not graph.parents[label]]
    print(f"labels that are their own root: {', '.join(roots) or 'none'}")
    if any(check.verdict == "FAILS" for check in verdicts.values()):
        raise typer.Exit(1)


config_app = typer.Typer(help="The configuration: its schema, its default, a check.", no_args_is_help=True)
app.add_typer(config_app, name="config", rich_help_panel=LOOK)


@config_app.command("default")
def config_default() -> None:
    """Print the commented default configuration (config/config.yaml)."""
    print(config_files.default_yaml(), end="")


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema (config/schema.json)."""
    print(config_files.schema_json(), end="")


@config_app.command("check")
def config_check(files: Files = DEFAULT_FILES) -> None:
    """Check configuration files, and say what they ask for."""
    from granularity.plan import jobs as plan

    config = config_files.load(*files)
    for condition in config.conditions:
        spaces = plan.spaces(config, condition)
        trainings = len(plan.pretrain_runs(config, condition)) + len(plan.finetune_runs(config, condition))
        print(f"{config.name}, {plan.condition_name(condition)}: {len(spaces)} label spaces, {trainings} trainings")


@config_app.command("report")
def config_report(files: Files = DEFAULT_FILES) -> None:
    """Print where the report lies."""
    from granularity.plan import jobs as plan

    print(plan.page(config_files.load(*files)))


def _parse(model: type[BaseModel], text: str, option: str = "--params") -> Any:
    try:
        return model.model_validate(_json(text, option))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        given = repr(first["input"])
        given = given if len(given) <= 80 else f"{given[:77]}..."
        raise GranularityError(f"{option} {where}: {first['msg']} (given: {given})") from None


def _json(text: str, option: str = "--params") -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GranularityError(f"{option}: not JSON: {text[:80]} ({error})") from None
    if not isinstance(values, dict):
        raise GranularityError(f"{option}: must be a JSON object, not {text[:80]}")
    for path, what in strict_yaml.odd(values):
        raise GranularityError(f"{option} {'.'.join(map(str, path))}: {what}")
    return values


def _show(text: str) -> None:
    """Print text whose names and values come from files: without codes that a terminal would obey."""
    print("\n".join(map(printable, text.split("\n"))))


def _runs(names: str) -> list[Run]:
    runs = [Run.parse(name) for name in names.split(",")]
    if len({run.id for run in runs}) < len(runs):
        raise GranularityError("--runs: a run is named twice")
    return runs


def _device(name: str) -> Any:
    if name not in ("auto", "cpu", "cuda"):
        raise GranularityError(f"--device {name}: must be auto, cpu or cuda")
    return name


def _remember_code() -> None:
    """Digest the code of a stage before it is imported: it may be edited while the job waits for a GPU."""
    kind = MAKES.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if kind is not None:
        code_digest(plan.MODULES[kind])


def main() -> None:
    """Run the command; what a user can mend is one line and status 1."""
    interrupt.install()
    try:
        try:
            _remember_code()
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where what it runs into is told in one line
    except interrupt.Stopped as stopped:
        say(f"stopped: {stopped.reason}; finished work is kept, and the next run goes on from there")
        raise
    except GranularityError as error:
        for line in error.args:
            say(f"error: {line}")
        sys.exit(1)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try to write the rest when it ends
        if not isinstance(error, BrokenPipeError):  # `granularity inspect ... | head`
            say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("out of memory|allocate memory", str(error)):
            raise  # torch has an error of its own for either memory
        say("error: out of memory; give the job more (--set-resources RULE:mem_mb=...) or less to do")
        sys.exit(1)
