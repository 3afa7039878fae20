"""The command `granularity`: one subcommand per stage, made from the table of stages; and those that look at results.

Every rule of the workflow is one of these commands, which `snakemake -np` prints and which runs alone. A stage's
options come as JSON (`--options`), as resolved from the configuration; keys left out take their defaults. Nothing heavy
is imported before a stage runs.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from granularity.base import interrupt
from granularity.base.errors import GranularityError, printable
from granularity.base.progress import say
from granularity.cli import of_stages
from granularity.config import files as config_files
from granularity.plan.graph import Plan
from granularity.store.lock import LostError

app = typer.Typer(
    name="granularity",
    help="How does the granularity of pretraining labels decide what a network learns?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
of_stages.add_all(app)

LOOK, STORE = "Looking at results", "Keeping results"
Files = Annotated[list[Path], typer.Option("--file", "-f", help="Configuration files; later ones win.")]
AsJson = Annotated[bool, typer.Option("--json", help="For a program.")]
DEFAULT_FILES = [Path("config/config.yaml")]


@app.command(rich_help_panel=LOOK)
def simulate(
    world: Annotated[str, typer.Argument(help="Name of the world.", show_default=False)],
    settings: Annotated[list[str], typer.Option("--set", help="KEY=VALUE over the setting's defaults.")] = [],  # noqa: B006
    arms: Annotated[list[str], typer.Option("--arm", help="An arm of the world, by its name.")] = [],  # noqa: B006
    size: Annotated[str, typer.Option(help="The size that the arms are of: quick or paper.")] = "quick",
    extension: Annotated[list[Path], typer.Option(help="A Python file of your own, such as a world.")] = [],  # noqa: B006
    device: Annotated[str, typer.Option(help="auto, cpu or cuda (never a silent fallback).")] = "auto",
) -> None:
    """Train one setting of a world, or some of its arms, alone and print their measures."""
    from granularity.base import extensions
    from granularity.stages.theory.simulation import simulate as run

    extensions.load(extension)
    if without := [text for text in settings if "=" not in text]:
        raise GranularityError(f"--set {without[0]}: must be KEY=VALUE")
    run(world, dict(text.split("=", 1) for text in settings), of_stages.device(device), arms, size)


@app.command(rich_help_panel=LOOK)
def inspect(
    path: Annotated[Path, typer.Argument(help="An artifact's folder or manifest, or a folder of artifacts.")],
    as_json: AsJson = False,
) -> None:
    """Show an artifact: what it is, how it was made, what it holds, and its lineage up to the raw images."""
    from granularity.look import inspection

    _show(inspection.as_json(path) if as_json else inspection.describe(path))


@app.command(rich_help_panel=LOOK)
def verify(
    path: Annotated[Path, typer.Argument(help="A folder of artifacts, such as results/.")], as_json: AsJson = False
) -> None:
    """Hash every artifact again; name what is corrupt or stale, and exit with status 1 if anything is."""
    from granularity.look import inspection

    result = inspection.verify(path)
    _show(json.dumps(result, indent=2) if as_json else inspection.describe_verification(result))
    _fail_if(result["problems"])


@app.command(rich_help_panel=STORE)
def gc(
    path: Annotated[Path, typer.Argument(help="A folder of results.")] = Path("results"),
    days: Annotated[float, typer.Option("--older-than", help="Days in which nothing was written.", min=0)] = 1.0,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it; otherwise it is only listed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List, or delete, what the store of results can do without: sizes and reasons.

    That is results that no name leads to any more and nothing named was made from, the work of unfinished jobs, and
    what was found damaged. Nothing else ever deletes any of it. What running jobs work on is kept.
    """
    from granularity.look import inspection
    from granularity.store import place

    found = place.needless(path, days)
    rows = [{"path": str(one.path), "bytes": one.size, "why": one.why} for one in found]
    _show(json.dumps(rows, indent=2) if as_json else inspection.describe_leftovers(found, delete))
    if delete:
        place.delete(found)


Results = Annotated[Path, typer.Argument(help="A folder of results, such as results or results/digits.")]
Url = Annotated[str, typer.Argument(help="A folder, or a URL that fsspec knows, such as s3://BUCKET/FOLDER.")]


@app.command(rich_help_panel=STORE)
def push(path: Results, url: Url) -> None:
    """Carry results to a folder or URL, with all that they were made from; what is there is not sent again."""
    from granularity.store import transfer

    print(transfer.push(path, url))


@app.command(rich_help_panel=STORE)
def pull(path: Results, url: Url) -> None:
    """Bring results back that were pushed: each is verified before it enters the store, and nothing is deleted."""
    from granularity.store import transfer

    print(transfer.pull(path, url))


@app.command(rich_help_panel=STORE)
def adopt(files: Files = DEFAULT_FILES) -> None:
    """Accept results of other code or other versions of packages, where making the cheapest again gives the same.

    For each change the cheapest of the results that it concerns is made again and compared. Where it is equal, all of
    them are published once more as results of the present code, with the evidence, the person and the time in their
    manifests; the next run of snakemake then finds them. Exits with status 1 if one differs: nothing of that change is
    accepted.
    """
    from granularity.plan import adoption

    if refused := adoption.run(Plan(config_files.load(*files))):
        raise GranularityError(*refused)


@app.command(rich_help_panel=LOOK)
def status(files: Files = DEFAULT_FILES, as_json: AsJson = False) -> None:
    """Show how far a configuration is: jobs done, running, failed and waiting, and what each stage cost.

    Reads manifests, claims and logs and writes nothing, so it may be asked while jobs run. Done means that a whole
    result of the present code, inputs and parameters is there, by its files' sizes (`granularity verify` hashes
    them). Failed means no result and an error in the log, interrupted that a job was killed without one, outdated
    that Snakemake would make a result again. A job that is queued or only starting counts as waiting.

    Exits with status 1 if a job failed.
    """
    from granularity.look import status as found

    plan = Plan(config_files.load(*files))
    jobs = found.look(plan)
    print(found.as_json(plan, jobs) if as_json else found.describe(jobs))
    _fail_if(any(job.state == "failed" for job in jobs))


@app.command(rich_help_panel=LOOK)
def spaces(
    path: Annotated[Path, typer.Argument(help="A folder of results, such as results/digits.")],
    files: Files = DEFAULT_FILES,
    as_json: AsJson = False,
) -> None:
    """Compare label spaces before training on them: size, balance, agreement with the human labels, cost.

    The network whose cost is estimated is the configuration's (--file). Exits with status 1 if a check fails.
    """
    from granularity.look import spaces as comparison

    found = comparison.compare(path, config_files.load(*files))
    _show(json.dumps(found, indent=2) if as_json else comparison.describe(found))
    _fail_if(any(check["verdict"] == "FAILS" for condition in found for check in condition["checks"]))


@app.command(rich_help_panel=LOOK)
def published(
    paper: Annotated[str | None, typer.Argument(help="Name of the paper. Left out: what there is.")] = None,
    table: Annotated[str, typer.Option(help="One of its tables alone, such as T5.", show_default=False)] = "",
) -> None:
    """Print the numbers that a paper published (docs/studies.md), as its tables print them."""
    from granularity.look import text

    _show(text.published_numbers(paper, table))


@app.command(rich_help_panel=LOOK)
def papers(path: Annotated[Path, typer.Argument(help="The folder of all results.")] = Path("results")) -> None:
    """Write one page over all results: every claim of the papers, what was published, ours, the verdict, the cost.

    It reads the verdicts and reports that lie in the folder (`snakemake`, `snakemake theory`), whatever the
    configuration that they are of, and trains nothing; what was never run is listed with the command that would run it.
    It writes papers.html, papers.csv (the claims), papers_numbers.csv (the published rows, with our numbers) and
    figures of several folders (papers_fig_4.svg, papers_figures.csv) there.
    """
    from granularity.look.papers import page

    file, counts = page.write(path)
    print(f"{file}  {', '.join(f'{number} {verdict}' for verdict, number in counts.items())}")


@app.command(rich_help_panel=LOOK)
def wordnet(
    synsets: Annotated[
        Path | None, typer.Argument(help="A list of synsets, one per line. Left out: the 21,843 of ImageNet-21k.")
    ] = None,
    folder: Annotated[Path, typer.Option("--dict", help="Folder with WordNet 3.0's data.noun.")] = Path(
        "/usr/share/wordnet"
    ),
) -> None:
    """Count the classes of some synsets at each WordNet level, beside the published counts."""
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
    config = config_files.load(*files)
    plan = Plan(config)
    for condition in plan.conditions:
        jobs = [job for stage in ("pretrain", "finetune") for job in plan.jobs(stage, condition=condition.name)]
        trainings = sum(len(job.options["runs"]) for job in jobs)
        print(f"{config.name}, {condition.name}: {len(condition.spaces)} label spaces, {trainings} trainings")


@config_app.command("report")
def config_report(files: Files = DEFAULT_FILES) -> None:
    """Print where the report lies."""
    print(Plan(config_files.load(*files)).page)


def _fail_if(failed: object) -> None:
    if failed:
        raise typer.Exit(1)


def _show(text: str) -> None:
    """Print text whose names and values come from files: without codes that a terminal would obey."""
    print("\n".join(map(printable, text.split("\n"))))


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
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("out of memory|allocate memory", str(error)):
            raise  # torch has an error of its own for either memory
        lines = ["out of memory; give the job more (--set-resources RULE:mem_mb=...) or less to do"]
    else:
        return
    for line in lines:
        say(f"error: {line}")
    sys.exit(1)
