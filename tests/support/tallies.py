"""What the tests have damaged, refused and killed: counted as they go, and printed at their end."""

from collections import Counter, defaultdict

tallies: defaultdict[str, Counter[str]] = defaultdict(Counter)


def lines() -> list[str]:
    return [
        f"{title}: {counter.total()} ({', '.join(f'{what} {count}' for what, count in counter.most_common())})"
        for title, counter in tallies.items()
        if counter
    ]


def add(found: dict[str, dict[str, int]]) -> None:
    """Add what another process has counted."""
    for title, counts in found.items():
        tallies[title].update(counts)
