"""The command `granularity`: a subcommand per stage, made from the table of stages; and those that look at results."""

import math
import os
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from granularity.base import interrupt, kernels
from granularity.base.errors import GranularityError, printable
from granularity.base.progress import say
from granularity.cli import exports, of_stages
from granularity.config import files as config_files
from granularity.plan.graph import Plan, plans
from granularity.stages import STAGES
from granularity.store.lock import LostError

app = typer.Typer(
    name="granularity",
    help="How does the granularity of pretraining labels decide what a network learns?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # a paragraph of a docstring is wrapped as one
    context_settings={"help_option_names": ["-h", "--help"]},
)
of_stages.add_all(app)

BEFORE, LOOK, STORE = "Before a run", "Looking at results", "Keeping results"
DEFAULT = str(config_files.DEFAULT)
OF_FILES = "Configuration files; later files override earlier ones."
Files = Annotated[
    list[Path],
    typer.Option("--file", "-f", help=OF_FILES, default_factory=lambda: [config_files.DEFAULT], show_default=DEFAULT),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table as CSV.")]
Rows = Annotated[int | None, typer.Option(help="Number of rows of a table to show.", min=0, show_default=False)]


@app.command(rich_help_panel=BEFORE)
def simulate(
    world: Annotated[str, typer.Argument(help="Name of the world.", show_default=False)],
    settings: Annotated[list[str], typer.Option("--set", help="KEY=VALUE, instead of the default.")] = [],  # noqa: B006
    arms: Annotated[list[str], typer.Option("--arm", help="Name of an arm of the world.")] = [],  # noqa: B006
    size: Annotated[str, typer.Option(help="Size of the arms: quick or paper.")] = "quick",
    extension: Annotated[list[Path], typer.Option(help="Your own Python file, such as a world.")] = [],  # noqa: B006
    device: Annotated[of_stages.Device, typer.Option(help="cuda fails if there is no GPU.")] = "auto",
) -> None:
    """Train one setting of a world, or some of its arms, and print the measures."""
    from granularity.base import extensions
    from granularity.stages.theory.simulation import simulate as run

    extensions.load(extension)
    if without := [text for text in settings if "=" not in text]:
        raise GranularityError(f"--set {without[0]}: must be KEY=VALUE")
    run(world, dict(text.split("=", 1) for text in settings), device, arms, size)


@app.command(rich_help_panel=LOOK)
def inspect(
    what: Annotated[
        str, typer.Argument(help="An artifact, one of its files, a folder of artifacts, or a run's id or name.")
    ],
    rows: Rows = None,
    csv: AsCsv = False,
    results: Annotated[Path, typer.Option(help="Folder to search for runs.")] = Path("results"),
) -> None:
    """Verify and show an artifact, one of its files, or a run.

    For an artifact: what it is, how it was made, its contents, and its lineage up to the raw images. For a run: its
    pretraining or finetunings, with errors, costs, measures and folders.
    """
    from granularity.look import items, text

    width = text.width_for(csv)
    _show(items.inspect(what, results, rows, width, csv), width)


@app.command(rich_help_panel=LOOK)
def compare(
    a: Annotated[str, typer.Argument(help="A label space, or a finetuned run by its id or name.")],
    b: Annotated[str, typer.Argument(help="Another label space or run.")],
    path: Annotated[Path, typer.Argument(help="Folder with both, such as results/digits/train-900.")] = Path("results"),
    rows: Rows = None,
    csv: AsCsv = False,
) -> None:
    """Compare two finetuned arms, or runs, image by image: which images does B get right that A gets wrong?

    Runs are paired by their seeds; numbers are means over backbones. --csv has a row per validation image.
    """
    from granularity.look import predictions, text

    comparison, width = predictions.compare(a, b, path), text.width_for(csv)
    _show(predictions.described(comparison, rows, width, csv), width)


@app.command(rich_help_panel=LOOK)
def verify(path: Annotated[Path, typer.Argument(help="A folder of artifacts, such as results/.")]) -> None:
    """Hash every artifact again and list those that are corrupt or stale; exit with status 1 if there are any."""
    from granularity.look import inspection

    result = inspection.verify(path)
    _show(inspection.describe_verification(result))
    _fail_if(result["problems"])


@app.command(rich_help_panel=STORE)
def gc(
    path: Annotated[Path, typer.Argument(help="A folder of results.")] = Path("results"),
    days: Annotated[float, typer.Option("--older-than", help="Days since the last write.", min=0)] = 1.0,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the files; otherwise they are only listed.")] = False,
) -> None:
    """List or delete what nothing needs in the store of results, with sizes and reasons.

    These are results that no name leads to any more and no named result was made from, the work of unfinished jobs, and
    damaged results. Only this command deletes them. Files that running jobs use are kept.
    """
    from granularity.look import inspection
    from granularity.store import place

    needless = place.needless(path, -math.inf)
    leftovers, younger = ([item for item in needless if (item.days >= days) is old] for old in (True, False))
    if delete:  # before anything is printed: who reads may take hours
        leftovers = place.delete(path, leftovers)
    _show(inspection.describe_leftovers(leftovers, younger, delete))


Results = Annotated[Path, typer.Argument(help="A folder of results, such as results or results/digits.")]
Url = Annotated[str, typer.Argument(help="A folder, or a URL that fsspec knows, such as s3://BUCKET/FOLDER.")]


@app.command(rich_help_panel=STORE)
def push(path: Results, url: Url) -> None:
    """Copy results, with everything they were made from, to a folder or URL; skip what is already there."""
    from granularity.store import transfer

    print(transfer.push(path, url))


@app.command(rich_help_panel=STORE)
def pull(path: Results, url: Url) -> None:
    """Copy pushed results back: each is verified before it enters the store, and nothing is deleted."""
    from granularity.store import artifact, transfer

    print(transfer.pull(path, url, (*STAGES, *artifact.PARTS)))


@app.command(rich_help_panel=STORE)
def adopt(files: Files) -> None:
    """Accept results of other code or package versions if the cheapest one, recomputed, is the same.

    For each change, the cheapest affected result is recomputed and compared. If it is equal, all affected results are
    published once more as results of the present code, with the evidence, the person and the time in their manifests;
    the next run of snakemake then finds them. If it differs, nothing of that change is accepted, and the exit status
    is 1.
    """
    from granularity.plan import adoption

    if refused := adoption.run(_plans(files)):
        raise GranularityError(*refused)


@app.command(rich_help_panel=LOOK)
def status(
    files: Files,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show a bar per running job until none is left.")] = False,
) -> None:
    """Show the progress of a configuration: jobs done, running, failed and waiting, and the cost of each stage.

    Reads manifests, claims and logs and writes nothing, so it can be used while jobs run. Done: there is a complete
    result of the present code, inputs and parameters, by the sizes of its files (`granularity verify` hashes them).
    Failed: there is no result, and an error in the log. Interrupted: the job was killed without an error. Outdated:
    Snakemake would recompute the result. A job that is queued or only starting counts as waiting.

    Exits with status 1 if a job failed.
    """
    from granularity.look import status as found

    all_plans = _plans(files)
    jobs = found.watch(all_plans) if watch else found.look_all(all_plans)
    if files == [config_files.DEFAULT] and not as_json and (never := found.never_run(all_plans[-1])):
        print(never)
        return
    print(found.as_json(all_plans, jobs) if as_json else found.describe(jobs))
    _fail_if(any(job.state == "failed" for job in jobs))


@app.command(rich_help_panel=LOOK)
def spaces(
    path: Annotated[Path, typer.Argument(help="A folder of results, such as results/digits.")],
    files: Files,
) -> None:
    """Compare label spaces before training on them: size, balance, agreement with the human labels, cost.

    The cost is estimated for the configuration's network (--file). Exits with status 1 if a check fails.
    """
    from granularity.look import spaces as comparison

    conditions = comparison.compare(path, config_files.load(*files))
    _show(comparison.describe(conditions))
    _fail_if(any(check["verdict"] == "FAILS" for condition in conditions for check in condition["checks"]))


@app.command(rich_help_panel=LOOK)
def published(
    paper: Annotated[str | None, typer.Argument(help="Name of the paper (default: list all).")] = None,
    table: Annotated[str, typer.Option(help="Print only this table, such as T5.", show_default=False)] = "",
) -> None:
    """Print the numbers that a paper published, as in its tables (docs/studies.md)."""
    from granularity.look import text

    _show(text.published_numbers(paper, table))


@app.command(rich_help_panel=LOOK)
def papers(path: Annotated[Path, typer.Argument(help="The folder of all results.")] = Path("results")) -> None:
    """Write one page over all results: every claim of the papers, the published numbers, ours, the verdict, the cost.

    It reads the verdicts and reports of all configurations in the folder (`snakemake`, `snakemake theory`), and trains
    nothing; anything that was never run is listed with the command that runs it. It writes papers.html, papers.csv (the
    claims), papers_numbers.csv (the published rows, with our numbers) and figures of several folders
    (papers_fig_4.svg, papers_figures.csv) there.
    """
    from granularity.look.papers import page

    file, counts = page.write(path)
    print(f"{file}  {', '.join(f'{number} {verdict}' for verdict, number in counts.items())}")


@app.command(rich_help_panel=LOOK)
def explore(
    results: Annotated[Path, typer.Argument(help="The results of one configuration, such as results/digits.")],
    to: Annotated[Path | None, typer.Option(help="Folder for the pages.", show_default="RESULTS/explore")] = None,
    images: Annotated[int, typer.Option(help="Most images per condition; larger sets are sampled.", min=1)] = 20_000,
) -> None:
    """Write a folder of pages for browsing results: runs, a map of the images, clusters, comparisons, trainings.

    They open in any browser, also from a mail or a memory stick, and load nothing from outside. A result that is
    missing, corrupt or of another version is not used; this command and the pages list it.
    """
    kernels.limit(1)
    from granularity.look.explore import page

    index, lost = page.write(results, to, images)
    _show("\n".join([*lost, str(index)]))


@app.command(rich_help_panel=LOOK)
def atlas(
    results: Annotated[
        list[Path], typer.Argument(help="Folders of results of one configuration, with any base seeds.")
    ],
    to: Annotated[
        Path | None, typer.Option(help="Folder for the page.", show_default="RESULTS/atlas; of several, beside them")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A measured number, such as probe/digit/linear; may be repeated.")
    ] = None,
    split: Annotated[str, typer.Option(help="The measured split.")] = "val",
) -> None:
    """Write a page of all measures by label space: differences from the target, and predictors of the final error.

    Beside the page it writes atlas.csv (a row per backbone and number), differences.csv and relations.csv (intervals
    over backbones, corrected for all numbers shown), and a figure per condition.
    """
    kernels.limit(1)
    from granularity.look import atlas

    print(atlas.write(results, to, key or (), split))


@app.command(rich_help_panel=LOOK)
def wordnet(
    synsets: Annotated[
        Path | None, typer.Argument(help="A list of synsets, one per line (default: the 21,843 of ImageNet-21k).")
    ] = None,
    folder: Annotated[Path, typer.Option("--dict", help="Folder with WordNet 3.0's data.noun.")] = Path(
        "/usr/share/wordnet"
    ),
) -> None:
    """Count the classes of some synsets at each WordNet level, next to the published counts."""
    from granularity.data.wordnet import WordNet
    from granularity.look import spaces as label_spaces

    labels = label_spaces.read_synsets(synsets)
    graph = WordNet.read(folder).above(labels)
    counts = label_spaces.level_counts(graph, labels)
    print(f"{len(labels)} labels, {len(graph.parents)} synsets above them, {sum(map(graph.is_living, labels))} living")
    print(counts.rename(columns={"granularity": "G", "several": "labels with several"}).to_string(index=False))
    checks = label_spaces.level_checks(counts) if synsets is None else []
    for check in checks:
        print(f"{check.id}  {check.what}: {check.found}, expected {check.expected}: {check.verdict}")
    _fail_if(any(check.verdict == "FAILS" for check in checks))


config_app = typer.Typer(
    help="Print the configuration's schema or default, or check a configuration.", no_args_is_help=True
)
app.add_typer(config_app, name="config", rich_help_panel=BEFORE)
app.add_typer(exports.app, name="export", rich_help_panel=LOOK)


@config_app.command("default")
def config_default() -> None:
    """Print every option with its default (config/options.yaml)."""
    print(config_files.default_yaml(), end="")


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema (config/schema.json)."""
    print(config_files.schema_json(), end="")


@config_app.command("check")
def config_check(files: Files) -> None:
    """Check configuration files and summarise them.

    This builds each network (on a device without memory), each optimiser with its arguments, and each augmentation
    policy. A dry run of Snakemake imports no torch, so it leaves these checks to the first job.
    """
    all_plans, contents = _plans(files, inputs=False), config_files.read(*files)
    from granularity.look import checking

    study = all_plans[-1].config
    all_plans = [plan for plan in all_plans if not plan.cells]
    missing, built = list(config_files.missing_paths(all_plans[0].config)), []
    for plan in all_plans:
        complaints, networks = checking.check(plan)
        config_files.refuse([line for line in complaints if line.partition(":")[0] not in dict(missing)], contents)
        built.append(networks)
    _show(checking.describe(study, all_plans, contents, built))
    config_files.refuse(map(": ".join, missing), contents)


@config_app.command("report")
def config_report(files: Files) -> None:
    """Print the path of the report."""
    print(_plans(files)[-1].page)


def _plans(files: list[Path], inputs: bool = True) -> list[Plan]:
    """The plans of a study's cells, or of the configuration that is none."""
    return plans(config_files.load(*files, inputs=inputs))


def _fail_if(failed: object) -> None:
    if failed:
        raise typer.Exit(1)


def _show(text: str, width: int | None = None) -> None:
    """Print text whose names and values come from files: without codes that a terminal would obey."""
    for line in map(printable, text.split("\n")):
        more = " " * (len(line) - len(line.lstrip()) + 4)  # what is longer than a line goes on below, indented
        print(line if width is None else textwrap.fill(line, width, subsequent_indent=more, break_on_hyphens=False))


def main() -> None:
    """Run the command, see :func:`told`."""
    interrupt.install()
    try:
        told(app)
    finally:
        try:
            if sys.stderr is not None:
                sys.stderr.flush()
        except OSError:  # a log on a full disk: Python would try again when it ends, and fail for it
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def told(run: Callable[[], object]) -> None:
    """Run something; what a user can mend is one line and status 1."""
    try:
        try:
            run()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where an error becomes one line
    except interrupt.Stopped as stopped:
        say(stopped.sentence)
        raise
    except LostError as lost:
        say(str(lost))
        sys.exit(of_stages.LOST)
    except GranularityError as error:
        lines = error.args
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try to write the rest when it ends
        lines = [f"{error.filename or 'standard output'}: {error.strerror or error}"]
        if isinstance(error, BrokenPipeError):  # `granularity inspect ... | head`
            lines = []
    except (ImportError, MemoryError, RuntimeError) as error:
        lacks = "out of memory|allocate memory|failed to map segment"
        if not isinstance(error, MemoryError) and not re.search(lacks, str(error)):
            raise  # torch has an error of its own for either memory
        lines = ["out of memory; give the job more memory (--set-resources RULE:mem_mb=...) or less work"]
    else:
        return
    for line in map(_with_command, lines):
        say(f"error: {line}")
    sys.exit(1)


def _with_command(line: str) -> str:
    """Append the command to a message that ends in "recompute the samples" or "recompute it"."""
    words = re.search(r"recompute (?:the )?(\w+)$", line)
    path = line.partition(":")[0].split("/")
    stage = next((one for one in (words[1], *path) if one in STAGES), None) if words else None
    snakemake = os.environ.get("GRANULARITY_COMMAND", "snakemake --configfile FILE")
    return f"{line}: {snakemake} -R make_{stage}" if stage else line
