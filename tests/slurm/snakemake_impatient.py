"""Snakemake that looks at its cluster jobs every second: it would wait tens of seconds, or what an hour asks for."""

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

RemoteExecutor.next_seconds_between_status_checks = property(lambda self: 1.0, lambda self, seconds: None)
main()
