"""Networks, found by name (`model.name`): a file here, or a file of the user's with `EXTENDS = "network"`.

Such a file holds `build(model, channels, seed)`, which returns a torch.nn.Module with fresh weights:

- `model`: :class:`granularity.learning.options.Model`, with the user's `args`;
- `channels`: of the images, 1 or 3;
- `seed`: torch's generator is seeded with it already; a network that draws again takes `seed + 1`.

The module has timm's methods: `forward_features(images)`, `forward_head(features, pre_logits=False)`,
`get_classifier()` (the head, one module), `reset_classifier(classes)` (a fresh head) and `num_features` (its inputs).
It may be built without a head, or with any: :mod:`granularity.learning.networks.network` puts a fresh one on it last,
so that networks of one seed have the same weights whatever their heads. Every other name is an architecture of timm's.
"""
