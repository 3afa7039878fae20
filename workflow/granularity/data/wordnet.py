"""WordNet's nouns: hypernyms, levels (docs/label_spaces.md) and living things.

Read from the dict files of WordNet 3.0, format wndb(5WN).
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular

if TYPE_CHECKING:
    import pandas as pd

SEPARATOR = "|"  # between the synsets of an image with several
LARGEST = 64 << 20  # bytes of data.noun, which has 15 MB
LIVING_THING = "n00004258"


@dataclass
class WordNet:
    """Nouns of WordNet by id, which is `n` and the eight-digit offset."""

    parents: dict[str, tuple[str, ...]]  # each synset's hypernyms, in the order of the file
    names: dict[str, str]  # each synset's first word
    _levels: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, folder: Path) -> WordNet:
        """Read `data.noun`. Raise GranularityError if it is missing or not WordNet's."""
        file = folder / "data.noun"
        parents, names, mentioned, number = {}, {}, {LIVING_THING}, 0
        try:
            text = read_regular(file, LARGEST).decode("ascii")
            for number, line in enumerate(io.StringIO(text, newline=None), 1):  # noqa: B007 - for the message
                if not line.startswith("  "):  # the licence
                    synset, names[synset], parents[synset], pointed = _parse(line)
                    mentioned |= pointed
        except GranularityError as error:
            remedy = "Debian's package wordnet-base puts it in /usr/share/wordnet; WordNet 3.0 ships it in dict/"
            raise GranularityError(f"samples.wordnet: {error}. {remedy}") from None
        except (IndexError, ValueError):  # or not ASCII: then the line is unknown
            where = f"line {number}" if number else "it"
            raise GranularityError(f"{file}: {where} is not in the format of WordNet's data.noun") from None
        try:  # a cycle would never end
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            raise GranularityError(f"{file}: {error.args[1][0]} is above itself; this is not WordNet 3.0") from None
        missing = min(mentioned - parents.keys(), default=None)
        if missing is not None:
            raise GranularityError(f"{file}: {missing} is missing; the file is truncated, or not WordNet 3.0")
        return cls(parents, names)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> WordNet:
        """Build WordNet from a table; the inverse of :meth:`frame`."""
        above = dict(zip(frame["synset"], map(tuple, frame["parents"]), strict=True))
        return cls(above, dict(zip(frame["synset"], frame["name"], strict=True)))

    def frame(self) -> pd.DataFrame:
        """Return a row per synset, sorted: `synset`, `name`, `parents` (a list of ids)."""
        import pandas as pd

        rows = [(synset, self.names[synset], list(self.parents[synset])) for synset in sorted(self.parents)]
        return pd.DataFrame(rows, columns=["synset", "name", "parents"])

    def above(self, synsets: list[str]) -> WordNet:
        """Return the part with some synsets and everything above them. Raise GranularityError for an unknown synset."""
        unknown = [synset for synset in synsets if synset not in self.parents]
        if unknown:
            what = f"{len(unknown)} synsets are not nouns of this WordNet, such as '{unknown[0]}'"
            raise GranularityError(f"{what}; ImageNet uses the ids of WordNet 3.0")
        found, todo = set(), set(synsets)
        while todo:
            found |= todo
            todo = {above for synset in todo for above in self.parents[synset]} - found
        return WordNet({s: self.parents[s] for s in found}, {s: self.names[s] for s in found})

    def level(self, synset: str, k: int) -> frozenset[str]:
        """Return the synsets `k` steps up, over all paths; a shorter path's root. Only this gives published counts."""
        key = (synset, k)
        if key not in self._levels:
            above = self.parents[synset]
            up = frozenset().union(*(self.level(parent, k - 1) for parent in above)) if k and above else {synset}
            self._levels[key] = frozenset(up)
        return self._levels[key]

    def is_living(self, synset: str) -> bool:
        """Return whether 'living thing' lies on any path from a synset to its root."""
        return LIVING_THING in self.above([synset]).parents

    def label(self, synset: str) -> str:
        """Return a readable name of a synset: its first word and the id."""
        return f"{self.names[synset]} ({synset})"


def _parse(line: str) -> tuple[str, str, tuple[str, ...], set[str]]:
    """Return id, first word, hypernyms, and every noun that a line points to."""
    fields = line.split("|", 1)[0].split(" ")
    words = int(fields[3], 16)
    first = 4 + 2 * words
    pointers = [fields[first + 1 + 4 * i : first + 5 + 4 * i] for i in range(int(fields[first]))]
    above = tuple(f"n{target}" for symbol, target, _, _ in pointers if symbol == "@")
    if len(fields[0]) != 8 or not fields[0].isdigit() or not line.endswith("\n") or not line[:-1].isprintable():
        raise ValueError
    nouns = {f"n{target}" for _, target, part, _ in pointers if part == "n"}
    return f"n{fields[0]}", fields[4].replace("_", " "), above, nouns
