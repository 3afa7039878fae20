"""The one exception that a user is meant to read."""

LONGEST = 1000


class GranularityError(Exception):
    """Something the user can mend: a line per mistake names the file and field, and says what to do.

    The command line prints it and exits with status 1. Names of files and classes come from anywhere: characters that
    do not print are written as escapes, and very long lines lose their middle.
    """

    def __init__(self, *lines: str):
        super().__init__(*map(_line, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


def printable(text: str) -> str:
    """The text on one line, with characters that do not print as Python's escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _line(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"
