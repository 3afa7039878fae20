"""Skipped tests are failures where GRANULARITY_NO_SKIPS is set, as where all that they want has been installed.

Two kinds of reason still skip, as nobody can install what is missing:

- `this file system ...`: it has names in UTF-8 only, or no files of terabytes;
- `this kernel ...`: not even root may mount anything, as in most containers.
"""

from __future__ import annotations

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
