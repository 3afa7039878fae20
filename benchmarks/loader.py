"""From JPEG to a training step: images per CPU second of one process, ours beside DataLoader with torchvision.

Both train the same trivial network (a linear layer on the mean colour), so that reading, cropping and copying are what
is timed: crops of 224 px in batches of 64, of JPEGs of a short side of 256 and quality 95, ours from the shards of
stage `pixels`, the peer from a folder of files by torchvision's ImageFolder and transforms.v2. In the last row the peer
reads the originals (500 x 375) and resizes them, as a training does that has no stage `pixels`.
"""

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from common import in_turns, jpegs, rated
from PIL import Image
from train_step import Images

BATCH, SIZE, CROP, LARGE = 64, 256, 224, (500, 375)
COLOUR = """
import torch
EXTENDS = "network"
class Colour(torch.nn.Module):
    num_features = 3
    def reset_classifier(self, classes):
        self.head = torch.nn.Linear(3, classes)
    def get_classifier(self):
        return self.head
    def forward_features(self, images):
        return images.mean((2, 3))
    def forward_head(self, features, pre_logits=False):
        return features if pre_logits else self.head(features)
    def forward(self, images):
        return self.head(images.mean((2, 3)))
def build(model, channels, seed):
    made = Colour()
    made.head, made.scale = torch.nn.Identity(), torch.nn.Parameter(torch.ones(1))
    return made
"""


def theirs(root: Path, transforms: list, batches: int) -> Callable[[], float]:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    moments = ([0.5] * 3, [0.25] * 3)
    last = [v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*moments)]
    files = ImageFolder(root, v2.Compose([*transforms, *last]))
    layer = torch.nn.Linear(3, 100)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def turn() -> float:
        began = 0.0
        for images, labels in DataLoader(files, BATCH, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(images.mean((2, 3))), labels).backward()
            optimizer.step()
            began = began or time.process_time()
        return (time.process_time() - began) / (batches - 1)

    return turn


def rows(quick: bool, device: str, images: int = 256, turns: int = 3) -> Iterator[dict]:
    from torchvision.transforms import v2

    images, turns = (2 * BATCH, 1) if quick else (images, turns)
    os.environ["GRANULARITY_READERS"] = "0"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = Images(folder, images, SIZE)
        (folder / "colour.py").write_text(COLOUR)
        words = ("--extension", str(folder / "colour.py"))
        for number, data in enumerate(jpegs(images, *LARGE)):
            large = Image.open(io.BytesIO(data))
            for kind, image in (("originals", large), ("kept", large.resize((round(SIZE * 4 / 3), SIZE)))):
                place = folder / kind / f"c{number % 2}" / f"{number:05d}.jpg"
                place.parent.mkdir(parents=True, exist_ok=True)
                image.save(place, quality=95)
        cases = {
            "crop, mirror": ({}, [v2.RandomCrop(CROP)], "kept"),
            "resized crop": ({"scale": [0.08, 1]}, [v2.RandomResizedCrop(CROP)], "kept"),
            "crop, the peer resizing originals": ({}, [v2.Resize(SIZE), v2.RandomCrop(CROP)], "originals"),
        }
        for label, (options, transforms, kind) in list(cases.items())[: 1 if quick else None]:
            recipe = {"batch_size": BATCH, "augment": {"flip": True, "crop": CROP, **options}}
            ours = made.training("jpeg", recipe, {"name": "colour", "args": {}, "stem": "timm"}, "cpu", words)
            peer = theirs(folder / kind, transforms, images // BATCH)
            work = f"JPEG to batch, {label} (images/s; DataLoader)"
            yield rated(work, in_turns({"ours": ours, "peer": peer}, turns), BATCH, 1.0)
