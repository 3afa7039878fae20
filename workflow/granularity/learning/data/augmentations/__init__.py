"""Further changes to each crop, found by name (`augment.policy`): a file here, or a user's file with
`EXTENDS = "augmentation"`.

Such a file contains `alter(image, options, seed)`, which returns a PIL image of the same mode and size:

- `image`: a PIL image, L or RGB: a training image after its crop;
- `options`: :class:`granularity.learning.options.Augment`, with the user's `policy_args`;
- `seed`: the source of all random draws; it differs for each image, step and place in the batch.
"""

FILES = dict.fromkeys(("AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide"), "_torchvision")
