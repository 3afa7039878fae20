"""What the main process of Snakemake changes for its run."""

import threading
from types import SimpleNamespace

import pytest
from snakemake.scheduling.job_scheduler import JobRateLimiter, JobScheduler
from snakemake.settings.types import MaxJobsPerTimespan

from granularity.plan import driver


@pytest.mark.parametrize(("started", "woken"), [(1, False), (2, True)])
def test_the_scheduler_wakes_itself_only_while_its_limit_holds_jobs_back(started, woken, monkeypatch):
    monkeypatch.setattr(JobScheduler, "_schedule_reevalutation", JobScheduler._schedule_reevalutation)
    driver._wake_less()
    limiter, wakings = JobRateLimiter(MaxJobsPerTimespan(2)), threading.Semaphore(0)
    limiter.register_jobs(started)
    JobScheduler._schedule_reevalutation(SimpleNamespace(job_rate_limiter=limiter, _open_jobs=wakings), 0.01)
    assert wakings.acquire(timeout=5 if woken else 0.1) == woken
