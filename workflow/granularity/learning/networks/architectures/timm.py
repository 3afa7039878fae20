"""Networks of timm, with a stem for small images: used for every `model.name` that is not a file here."""

from granularity.learning.options import Model


def build(model: Model, channels: int, seed: int):
    """Return a timm network without a head. Raise GranularityError for an unknown name or unsuitable arguments."""
    import timm
    import torch

    from granularity.base.errors import GranularityError

    try:
        network = timm.create_model(model.name, in_chans=channels, num_classes=0, **(model.args or {}))
        network.get_classifier  # noqa: B018  (a network for features alone has none)
    except Exception as error:  # any error of timm for unsuitable arguments
        raise GranularityError(f"model.name = {model.name}, model.args = {model.args}: {error}") from error
    if model.stem == "small":
        if not hasattr(network, "conv1") or not hasattr(network, "maxpool"):
            raise GranularityError(f"model.stem = small: {model.name} is not a ResNet; set model.stem to timm")
        width = [layer.out_channels for layer in network.conv1.modules() if isinstance(layer, torch.nn.Conv2d)][-1]
        torch.manual_seed(seed + 1)
        network.conv1 = torch.nn.Conv2d(channels, width, 3, stride=1, padding=1, bias=False)
        torch.nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = torch.nn.Identity()
    return network
