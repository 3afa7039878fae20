"""Networks, found by name (`model.name`): a file here, or a user's file with `EXTENDS = "network"`.

Such a file contains `build(model, channels, seed)`, which returns a torch.nn.Module with fresh weights:

- `model`: :class:`granularity.learning.options.Model`, with the user's `args`;
- `channels`: of the images, 1 or 3;
- `seed`: torch's generator is already seeded with it; a network that draws again uses `seed + 1`.

The module has timm's methods: `forward_features(images)`, `forward_head(features, pre_logits=False)`,
`get_classifier()` (the head, one module), `reset_classifier(classes)` (a fresh head) and `num_features` (its inputs);
:class:`granularity.learning.networks.headed.Headed` has those of one linear head.
It may be built with any head or none: :mod:`granularity.learning.networks.network` adds a fresh one at the end, so that
networks of one seed have the same backbone for every head. All other names are architectures of timm.
"""
