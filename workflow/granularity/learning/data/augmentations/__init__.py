"""What is done to each crop besides, found by name (`augment.policy`): a file here, or a file of the user's with
`EXTENDS = "augmentation"`.

Such a file holds `alter(image, options, seed)`, which returns a PIL image of the same mode and size:

- `image`: a PIL image, L or RGB, of one training image after its crop;
- `options`: :class:`granularity.learning.options.Augment`, with the user's `policy_args`;
- `seed`: what all that it draws is drawn from, another for each image, step and place in the batch.
"""

FILES = dict.fromkeys(("AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide"), "_torchvision")
