"""Images per second of stage `embed`, beside open_clip's bare forward with the same weights.

Ours is the whole stage, without the start of Python: reading, decoding, loading the model, the forward, writing. The
peer is `encode_image`, normalised, on a batch that lies ready in memory, so 1.0 is the most that can be reached, and
that only where images are decoded while a GPU works. Weights are random, which changes no time.
"""

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import open_clip
import torch
from common import clock_of, data_set, in_turns, jpegs, rated, stage
from PIL import Image

BATCH = 64
SMALL = {  # for images as small as these are
    "embed_dim": 128,
    "vision_cfg": {"image_size": 64, "patch_size": 8, "layers": 6, "width": 256, "head_width": 64},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1},
}


def bare(model: str, weights: Path, files: list[bytes], count: int, device: str, precision: str) -> Callable[[], None]:
    network, _, transform = open_clip.create_model_and_transforms(model, pretrained=str(weights), device=device)
    network.eval()
    batch = torch.stack([transform(Image.open(io.BytesIO(data)).convert("RGB")) for data in files]).to(device)

    def forward() -> None:
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            for _ in range(count // BATCH):
                network.encode_image(batch, normalize=True)

    return forward


def rows(
    quick: bool, device: str, images: int = 640, model: str = "small", precision: str = "float32", turns: int = 2
) -> Iterator[dict]:
    images, turns = (2 * BATCH, 1) if quick else (images, turns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = jpegs(BATCH, 64, 64)
        samples = data_set(folder / "made", images - BATCH, files)  # and a batch to validate
        architecture = given = model
        if model == "small":
            given = str(folder / "small-clip.json")
            Path(given).write_text(json.dumps(SMALL))
            open_clip.add_model_config(Path(given))
            architecture = "small-clip"
        weights = folder / "weights.pt"
        torch.manual_seed(0)
        torch.save(open_clip.create_model(architecture).state_dict(), weights)
        options = {"model": given, "pretrained": str(weights), "batch_size": BATCH, "precision": precision}
        number = iter(range(turns))

        def ours() -> None:
            place = folder / f"turn-{next(number)}" / "embed"  # a store of its own, not that of the samples
            stage("embed", place, options, "--device", device, samples=samples)

        sides = {"ours": ours, "peer": bare(architecture, weights, files, images, device, precision)}
        work = f"embed {images} JPEGs of 64 px, {model}, {precision}, {device} (images/s; open_clip's forward)"
        yield rated(work, in_turns(sides, turns, clock_of(device)), images, 0.95)
