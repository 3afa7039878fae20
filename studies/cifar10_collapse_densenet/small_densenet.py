"""timm's DenseNet for images of 32 pixels or less: a first convolution of 3x3 and stride 1, and no pooling after it."""

import torch

EXTENDS = "network"


def build(model, channels, seed):
    """`args`: those of timm's `densenet121`, such as `growth_rate` and `block_config`."""
    import timm

    network = timm.create_model("densenet121", in_chans=channels, num_classes=0, **(model.args or {}))
    width = network.features.conv0.out_channels
    torch.manual_seed(seed + 1)
    network.features.conv0 = torch.nn.Conv2d(channels, width, 3, padding=1, bias=False)
    torch.nn.init.kaiming_normal_(network.features.conv0.weight)
    network.features.pool0 = torch.nn.Identity()
    return network
