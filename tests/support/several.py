"""What became of several processes that ran together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Ended:
    status: list[int]
    errors: list[str]

    @property
    def said(self) -> list[str]:
        """Lines of all processes."""
        return [line for text in self.errors for line in text.splitlines()]
