"""The configuration of the default run, with other values."""

from pathlib import Path

from granularity.base import strict_yaml
from granularity.config.options import Config
from granularity.plan.trainings import deep

FILE = Path(__file__).parents[2] / "config/config.yaml"


def config(**over) -> Config:
    return Config.model_validate(deep(strict_yaml.read(FILE), over))
