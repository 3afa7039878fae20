"""WordNet's nouns: hypernyms, levels and living things.

Read from the dict files of WordNet 3.0 (Debian's package wordnet-base, or a `dict/` folder), format wndb(5WN).
Hypernyms are the `@` pointers alone; instance hypernyms (`@i`) are not followed. With that, and with the union over
all paths, the level counts of Hong et al. come out exactly (`granularity wordnet`).
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular

if TYPE_CHECKING:
    import pandas as pd

SEPARATOR = "|"  # between the synsets of an image that has several
LARGEST = 64 << 20  # bytes of data.noun, which has 15 MB
LIVING_THING = "n00004258"


@dataclass
class WordNet:
    """Nouns of WordNet, by id: `n` and the eight-digit offset.

    Attributes:
        parents: each synset's hypernyms, in the order of the file.
        names: each synset's first word.
    """

    parents: dict[str, tuple[str, ...]]
    names: dict[str, str]
    _levels: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, folder: Path) -> WordNet:
        """Read `data.noun`.

        Raises:
            GranularityError: the file is missing or is not WordNet's.
        """
        file = folder / "data.noun"
        parents, names, mentioned = {}, {}, {LIVING_THING}
        try:
            text = read_regular(file, LARGEST).decode("ascii")
        except GranularityError as error:
            raise GranularityError(
                f"samples.wordnet: {error}. Debian's package wordnet-base puts it in /usr/share/wordnet; WordNet 3.0 "
                "ships it in dict/"
            ) from None
        except UnicodeDecodeError:
            raise GranularityError(f"{file}: is not WordNet's data.noun") from None
        for number, line in enumerate(io.StringIO(text, newline=None), 1):
            if line.startswith("  "):  # the licence
                continue
            try:
                synset, name, above, pointed = _parse(line)
            except (IndexError, ValueError):
                raise GranularityError(f"{file}: line {number} is not in WordNet's format") from None
            parents[synset], names[synset] = above, name
            mentioned |= pointed
        circle = _in_a_circle(parents)
        if circle is not None:
            raise GranularityError(f"{file}: {circle} lies above itself; this is no WordNet 3.0")
        missing = min(mentioned - parents.keys(), default=None)
        if missing is not None:
            raise GranularityError(f"{file}: {missing} is missing; the file is truncated, or no WordNet 3.0")
        return cls(parents, names)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> WordNet:
        """The inverse of :meth:`frame`."""
        above = {synset: tuple(parents) for synset, parents in zip(frame["synset"], frame["parents"], strict=True)}
        return cls(above, dict(zip(frame["synset"], frame["name"], strict=True)))

    def frame(self) -> pd.DataFrame:
        """One row per synset, sorted: `synset`, `name`, `parents` (a list of ids)."""
        import pandas as pd

        order = sorted(self.parents)
        return pd.DataFrame(
            {
                "synset": order,
                "name": [self.names[synset] for synset in order],
                "parents": [list(self.parents[synset]) for synset in order],
            }
        )

    def above(self, synsets: list[str]) -> WordNet:
        """The part of WordNet that holds some synsets and everything above them.

        Raises:
            GranularityError: one of them is not in WordNet.
        """
        unknown = [synset for synset in synsets if synset not in self.parents]
        if unknown:
            raise GranularityError(
                f"{len(unknown)} synsets are not nouns of this WordNet, such as '{unknown[0]}'; ImageNet's ids are "
                "those of WordNet 3.0"
            )
        found, todo = set(), list(synsets)
        while todo:
            synset = todo.pop()
            if synset not in found:
                found.add(synset)
                todo += self.parents[synset]
        return WordNet({s: self.parents[s] for s in found}, {s: self.names[s] for s in found})

    def level(self, synset: str, k: int) -> frozenset[str]:
        """The synsets `k` steps up, over all hypernym paths; the root of a path that is shorter than that.

        Source: Hong et al., ImageNet21k experiments; of the rules tried for several paths, this one alone gives the
        published counts.
        """
        key = (synset, k)
        if key not in self._levels:
            above = self.parents[synset]
            up = frozenset().union(*(self.level(parent, k - 1) for parent in above)) if k and above else {synset}
            self._levels[key] = frozenset(up)
        return self._levels[key]

    def is_living(self, synset: str) -> bool:
        """Whether 'living thing' lies on any path from a synset to its root."""
        seen, todo = set(), [synset]
        while todo:
            one = todo.pop()
            if one == LIVING_THING:
                return True
            if one not in seen:
                seen.add(one)
                todo += self.parents[one]
        return False

    def label(self, synset: str) -> str:
        """A synset's name for people: the first word and the id."""
        return f"{self.names[synset]} ({synset})"


def _in_a_circle(parents: dict[str, tuple[str, ...]]) -> str | None:
    """A synset that is above itself, if there is one: what is left when roots are taken away again and again."""
    below: dict[str, list[str]] = {}
    waiting = {}
    for synset, above in parents.items():
        known = [one for one in above if one in parents]
        waiting[synset] = len(known)
        for one in known:
            below.setdefault(one, []).append(synset)
    free = [synset for synset, count in waiting.items() if not count]
    for synset in free:
        for one in below.get(synset, ()):
            waiting[one] -= 1
            if not waiting[one]:
                free.append(one)
    return min((synset for synset, count in waiting.items() if count), default=None)


def _parse(line: str) -> tuple[str, str, tuple[str, ...], set[str]]:
    """Id, first word, hypernyms, and every noun that it points to."""
    fields = line.split("|", 1)[0].split(" ")
    words = int(fields[3], 16)
    first = 4 + 2 * words
    pointers = [fields[first + 1 + 4 * i : first + 5 + 4 * i] for i in range(int(fields[first]))]
    above = tuple(f"n{target}" for symbol, target, _, _ in pointers if symbol == "@")
    if len(fields[0]) != 8 or not fields[0].isdigit() or not line.endswith("\n") or not line[:-1].isprintable():
        raise ValueError
    nouns = {f"n{target}" for _, target, part, _ in pointers if part == "n"}
    return f"n{fields[0]}", fields[4].replace("_", " "), above, nouns
