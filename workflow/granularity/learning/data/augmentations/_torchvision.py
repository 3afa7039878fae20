"""The policies of torchvision.transforms.v2, which draw from torch's generator; others draw as if they had not."""

import importlib

import torch

from granularity.base.errors import GranularityError


def alter(image, options, seed):
    # By its name, or torchvision would be in the keys of trainings; torch is, whose version decides torchvision's.
    v2, given = importlib.import_module("torchvision.transforms.v2"), dict(options.policy_args)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            if "policy" in given:
                given["policy"] = v2.AutoAugmentPolicy(given["policy"])
            return getattr(v2, options.policy)(**given)(image)
        except Exception as error:  # whatever torchvision does with arguments that it does not take
            raise GranularityError(f"augment.policy = {options.policy}, policy_args = {given}: {error}") from error
