"""The policies of torchvision.transforms.v2. They draw from torch's generator, whose state is restored afterwards."""

import importlib

import torch

from granularity.base.errors import GranularityError


def alter(image, options, seed):
    # Imported by name, so that torchvision is not in the keys of trainings; torch is, and determines its version.
    v2, given = importlib.import_module("torchvision.transforms.v2"), dict(options.policy_args)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            if "policy" in given:
                given["policy"] = v2.AutoAugmentPolicy(given["policy"])
            return getattr(v2, options.policy)(**given)(image)
        except Exception as error:  # any error of torchvision for unsuitable arguments
            raise GranularityError(f"augment.policy = {options.policy}, policy_args = {given}: {error}") from error
