"""Sample tables as the stage makes them, and the section `samples` with the keys of every source."""

from pathlib import Path

from PIL import Image

from granularity.stages.samples.options import Samples, samples_section
from granularity.store.artifact import Artifact
from support import tasks


def section(**options) -> Samples:
    """The section `samples`."""
    return samples_section()(**options)


def make(params: Samples, output: Path, train_size="all", seed: int = 0, threads: int = 1, show: bool = False) -> Path:
    """Run the stage; returns the folder of the sample table."""
    options = {**dict(params), "train_size": train_size, "show": show}
    tasks.run("samples", output, options, seed, threads=threads)
    return output


def of_folder(root: Path, *ranks: str, validation=1, output: str = "samples", train_size="all", **over) -> Path:
    """The sample table of a folder of images, beside that folder."""
    params = section(source="folder", root=root, ranks=ranks, target=ranks[0], validation=validation, **over)
    return make(params, root.parent / output, train_size)


def table_of(folder: Path):
    """The rows of a sample table."""
    return Artifact.open(folder, "samples").table("samples.parquet")


def save(file: Path, image: Image.Image | None = None, **options) -> None:
    """An image file, grey if nothing else is given."""
    file.parent.mkdir(parents=True, exist_ok=True)
    (image or Image.new("L", (4, 4), 7)).save(file, **options)
