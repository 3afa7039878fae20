"""Skipped tests are failures where GRANULARITY_NO_SKIPS is set, as where all that they want has been installed.

But for `this file system ...` (has UTF-8 names only, or no files of terabytes) and `this kernel ...` (lets not even
root mount anything, as in most containers): nobody can install what is missing.
"""

import os

import pytest

VARIABLE = "GRANULARITY_NO_SKIPS"
FORGIVEN = ("Skipped: this file system ", "Skipped: this kernel ")


def _strict(report):
    """The report; of a failure, if it was one of a skip that is not forgiven."""
    if not os.environ.get(VARIABLE) or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.startswith(FORGIVEN):
        report.outcome, report.longrepr = "failed", f"{reason}; a failure here, as {VARIABLE} is set"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport():
    return _strict((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report():
    return _strict((yield))
