"""The commands `granularity export ...` (docs/exports.md)."""

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(help="Take networks, label spaces, embeddings and histories elsewhere.", no_args_is_help=True)
Results = Annotated[Path, typer.Argument(help="A folder of results, such as results/digits.", show_default=False)]
To = Annotated[Path, typer.Option("--to", help="What to make; nothing may be there.", show_default=False)]


@app.command()
def backbone(
    run: Annotated[str, typer.Argument(help="A run's name or id, or RUN@EPOCH.", show_default=False)],
    to: To,
    results: Annotated[Path, typer.Option(help="A folder that has the run somewhere below.")] = Path("results"),
    form: Annotated[
        Literal["timm", "state_dict"], typer.Option("--format", help="state_dict: weights, and how to load them.")
    ] = "timm",
) -> None:
    """Write a pretrained network, or a finetuned one that was kept, for `timm.create_model("local-dir:FOLDER")`."""
    from granularity.look.exports.backbone import export

    export(run, results, to, form)


@app.command()
def labels(
    results: Results,
    to: To,
    space: Annotated[list[str], typer.Option(help="A label space, by its name; left out: all.")] = [],  # noqa: B006
    images: Annotated[bool, typer.Option("--images", help="With the images, as their publisher ships them.")] = False,
) -> None:
    """Write a condition's label spaces as Parquet that `datasets` reads: a row per training image."""
    from granularity.look.exports.labels import export

    export(results, to, space, images)


@app.command()
def embeddings(
    results: Results,
    to: To,
    images: Annotated[bool, typer.Option("--images", help="With the images, as their publisher ships them.")] = False,
) -> None:
    """Write a condition's images as Parquet for viewers: vectors, a map, labels and predictions, a row per image."""
    from granularity.look.exports.embeddings import export

    export(results, to, images)


@app.command()
def history(
    results: Results, to: To, form: Annotated[Literal["csv", "tensorboard"], typer.Option("--format")] = "csv"
) -> None:
    """Write how trainings went, epoch by epoch."""
    from granularity.look.exports.history import export

    export(results, to, form)
