"""What a source gives.

A source reads one family of data sets in its publisher's own layout. It knows nothing of splits held out, of
training-set sizes or of which ranks are wanted; the stage sees to those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.data.columns import RESERVED

if TYPE_CHECKING:
    import pandas as pd

    from granularity.stages.samples.options import Samples


@dataclass
class Source:
    """The images of a data set.

    Attributes:
        frame: one row per image, in an order that does not depend on the machine. Columns: `sample_id` (unique);
            `split`, the publisher's own name of it (left out where there is none); `distribution`, ID or OOD (only
            for domain-shift sets); where the bytes are, see below; every other column is a rank of labels,
            categorical with the classes in the publisher's order (or text: then in alphabetical order). An image
            with several labels has them in one string, joined by `|`.
        images: where the publisher ships arrays and no image files: the images as PNG files, in row order. They are
            stored with the sample table.
        root: the folder that `file` is relative to, where it is not `samples.root`.
        notes: what the source wants recorded in the manifest.

    Where the bytes are: `file`, relative to `samples.root` with `/` between folders; the whole of it, or the row
    `row` of a Parquet file, or the `bytes` bytes at `offset` of an archive. With `images`, all four are left out.
    """

    frame: pd.DataFrame
    images: Iterable[bytes] | None = None
    root: Path | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> list[str]:
        """The label columns."""
        return [column for column in self.frame.columns if column not in RESERVED]


def find(params: Samples, threads: int = 1) -> Source:
    """The images of the data set that a configuration names.

    Raises:
        GranularityError: there are none, or two have the same name.
    """
    source = extensions.find("source", params.source).read(params, threads)
    if not len(source.frame):
        raise GranularityError(f"{params.root}: holds no images of the layout of samples.source '{params.source}'")
    twice = source.frame["sample_id"].duplicated()
    if twice.any():
        name = source.frame["sample_id"][twice].iloc[0]
        raise GranularityError(f"{params.root}: two images have the sample_id '{name}'")
    return source
