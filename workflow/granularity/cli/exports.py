"""The commands `granularity export ...` (docs/exports.md)."""

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(help="Export networks, label spaces, embeddings, histories and runs.", no_args_is_help=True)
Results = Annotated[Path, typer.Argument(help="A folder of results, such as results/digits.", show_default=False)]
To = Annotated[Path, typer.Option("--to", help="New file or folder; it must not exist yet.", show_default=False)]


@app.command()
def backbone(
    run: Annotated[str, typer.Argument(help="A run's name or id, or RUN@EPOCH.", show_default=False)],
    to: To,
    results: Annotated[Path, typer.Option(help="A folder that contains the run at any depth.")] = Path("results"),
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
    space: Annotated[list[str], typer.Option(help="Name of a label space (default: all).")] = [],  # noqa: B006
    images: Annotated[bool, typer.Option("--images", help="Include the images, as published.")] = False,
) -> None:
    """Write a condition's label spaces as Parquet that `datasets` reads: a row per training image."""
    from granularity.look.exports.labels import export

    export(results, to, space, images)


@app.command()
def embeddings(
    results: Results,
    to: To,
    images: Annotated[bool, typer.Option("--images", help="Include the images, as published.")] = False,
) -> None:
    """Write a condition's images as Parquet for viewers: vectors, a map, labels and predictions, a row per image."""
    from granularity.look.exports.embeddings import export

    export(results, to, images)


@app.command()
def subset(
    results: Results,
    to: To,
    images: Annotated[int, typer.Option("--images", min=1, help="Number of training images.", show_default=False)],
    space: Annotated[list[str], typer.Option(help="Name of a label space; repeat from coarse to fine.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random draw.")] = 0,
) -> None:
    """Write a balanced subset of the training images as a text file, for `samples.subset`."""
    from granularity.look.exports.subset import export

    export(results, to, list(dict.fromkeys(space)), images, seed)


@app.command()
def history(
    results: Results, to: To, form: Annotated[Literal["csv", "tensorboard"], typer.Option("--format")] = "csv"
) -> None:
    """Write the history of trainings, epoch by epoch."""
    from granularity.look.exports.history import export

    export(results, to, form)


@app.command()
def crate(
    results: Results,
    to: Annotated[
        Path,
        typer.Option("--to", "--output", help="New folder, or NAME.zip; it must not exist yet.", show_default=False),
    ],
    arrays: Annotated[bool, typer.Option("--arrays", help="Include arrays, weights and images.")] = False,
    licence: Annotated[
        str, typer.Option("--license", help="License of the crate, such as https://spdx.org/licenses/CC-BY-4.0.")
    ] = "not stated",
) -> None:
    """Write a finished run as a Workflow Run RO-Crate: results and how each was made, for an archive."""
    from granularity.look.exports.crate import export

    export(results, to, arrays, licence)
