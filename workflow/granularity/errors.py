"""The one exception that a user is meant to read."""


class GranularityError(Exception):
    """Something the user can mend: the message names the file and field, and says what to do.

    The command line prints it as one line and exits with status 1; it is never a traceback.
    """
