"""Images per second of stage `embed` as Snakemake starts it, beside a script as open_clip's documentation has it.

Each is a process of its own on all cores, timed from its start to its written result. The peer has torch's and MKL's
own defaults, and the best of several numbers of workers. Weights are random, which changes no time.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import open_clip
import torch
from common import CORES, OPERATORS, data_set, in_turns, jobs, jpegs, rated, script, wall

BATCH = 64
SMALL = {  # for images as small as these are
    "embed_dim": 128,
    "vision_cfg": {"image_size": 64, "patch_size": 8, "layers": 6, "width": 256, "head_width": 64},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1},
}
PEER = (
    OPERATORS
    + """
import sys
import numpy as np
import open_clip
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

config, model, weights, folder, workers, device, precision, out = sys.argv[1:]
if config:
    open_clip.add_model_config(config)
network, _, transform = open_clip.create_model_and_transforms(model, pretrained=weights, device=device)
network.eval()
loader = DataLoader(ImageFolder(folder, transform), batch_size=64, num_workers=int(workers))
found = []
with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
    for images, _ in loader:
        found.append(network.encode_image(images.to(device), normalize=True).float().cpu())
np.save(out, torch.cat(found).numpy())
"""
)


def rows(
    quick: bool, device: str, images: int = 640, model: str = "small", precision: str = "float32", turns: int = 2
) -> Iterator[dict]:
    images, turns = (2 * BATCH, 1) if quick else (images, turns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = jpegs(BATCH, 64, 64)
        samples = data_set(folder / "made", images - BATCH, files)  # and a batch to validate
        (folder / "files" / "class").mkdir(parents=True)
        for number in range(images):
            (folder / "files" / "class" / f"{number:06d}.jpg").write_bytes(files[number % BATCH])
        architecture, config = model, ""
        if model == "small":
            config, architecture = str(folder / "small-clip.json"), "small-clip"
            Path(config).write_text(json.dumps(SMALL))
            open_clip.add_model_config(Path(config))
        weights = folder / "weights.pt"
        torch.manual_seed(0)
        torch.save(open_clip.create_model(architecture).state_dict(), weights)
        options = {"model": config or model, "pretrained": str(weights), "batch_size": BATCH, "precision": precision}
        number = iter(range(100))

        def ours() -> None:
            place = folder / f"turn-{next(number)}" / "embed"  # a store of its own, not that of the samples
            words = ["--samples", samples, "--options", json.dumps(options), "--device", device]
            jobs([["embed", *words, "--threads", CORES, "--output", place]])

        def theirs(workers: int) -> None:
            folders = folder / "files", workers, device, precision, folder / "peer.npy"
            script(PEER, config, architecture, weights, *folders)

        counts = (0,) if quick else (0, CORES)
        sides = {"ours": ours} | {str(count): lambda count=count: theirs(count) for count in counts}
        seconds = in_turns(sides, turns, wall)
        seconds["peer"] = min(seconds[str(count)] for count in counts)
        work = f"embed {images} JPEGs of 64 px, {model}, {precision}, {device} (images/s; open_clip with DataLoader)"
        yield rated(work, seconds, images, 1.5)
