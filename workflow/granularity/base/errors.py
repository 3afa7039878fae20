"""The only exception whose message is meant for users."""

LONGEST = 1000


class GranularityError(Exception):
    """An error that the user can fix: one line per mistake names the file and field, and says what to do.

    The command line prints it and exits with status 1. Because names of files and classes come from anywhere,
    unprintable characters are escaped, and very long lines are cut in the middle.
    """

    def __init__(self, *lines: str):
        super().__init__(*map(_line, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


def printable(text: str) -> str:
    """Return the text on one line, with unprintable characters as Python's escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _line(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"
