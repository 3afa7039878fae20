"""Images per second of a training, beside the step of timm's own training script on the same network.

Ours is stage `pretrain`, from its first step to its last: the order of images, augmentation, forward and backward
passes, the optimiser, with images that are resident on the device. The peer is what timm's `train.py` does in a step
(forward under autocast, loss, backward, optimiser), on images that are ready: it loads and augments nothing. The last
row compares our training on images that are read and decoded meanwhile with the same on images in memory.

And networks of the default run (300 digits of 8 x 8) trained side by side in one job, beside a job for each of them:
seconds of stage `pretrain` as a whole.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from common import clock_of, data_set, in_turns, jpegs, rated, stage
from torch.optim.optimizer import register_optimizer_step_post_hook

SMALL = {"layers": [2, 2, 2, 2], "channels": [16, 32, 64, 128], "stem_width": 16}
# network, its arguments, side of the images, crop, batch, micro-batch, precision, compiled
ON_CPU = [
    ("resnet18", SMALL, 64, 56, 64, None, "float32", False),
    ("resnet18", SMALL, 64, 56, 64, 16, "float32", False),
    ("vit_tiny_patch16_224", {"img_size": 64, "patch_size": 8}, 72, 64, 32, None, "float32", False),
]
ON_GPU = [
    ("resnet50", None, 256, 224, 256, None, "bfloat16", False),
    ("resnet50", None, 256, 224, 256, None, "bfloat16", True),
    ("resnet50", None, 256, 224, 1024, 256, "bfloat16", False),
    ("vit_base_patch16_224", None, 256, 224, 256, None, "bfloat16", False),
    ("resnet34", None, 256, 224, 256, None, "tf32", False),
]
CLASSES = 100
numbers = itertools.count()


class Images:
    """Photographs as stages `samples`, `pixels` and `hierarchy` leave them, and trainings on them."""

    def __init__(self, folder: Path, images: int, side: int):
        self.folder, self.images, self.side = folder / str(side), images, side
        self.samples = data_set(self.folder, images, jpegs(min(64, images), side * 4 // 3, side), CLASSES)
        options = {"space": "leaves", "family": "manual", "params": {"rank": "leaf"}}
        self.labels = stage("hierarchy", self.folder / "leaves", options, samples=self.samples)

    def pixels(self, form: str) -> Path:
        options, place = {"size": self.side, "mode": "RGB", "format": form}, self.folder / form
        return place if place.exists() else stage("pixels", place, options, samples=self.samples)

    def training(self, form: str, recipe: dict, model: dict, device: str, words=()) -> Callable[[], float]:
        """A function that trains one epoch anew, and returns the seconds from the end of its first step to the last."""
        clock = clock_of(device)
        recipe = {"epochs": 1, "lr": 0.01, "warmup_epochs": 0, **recipe}
        last = self.images // recipe["batch_size"]

        def turn() -> float:
            steps, times, number = itertools.count(1), [], next(numbers)
            hook = register_optimizer_step_post_hook(lambda *_: next(steps) in (1, last) and times.append(clock()))
            options = {"recipe": recipe, "model": model, "runs": [f"leaves-p0-{number:08d}"]}
            place = self.folder / f"pretrain-{number}"
            given = {"samples": self.samples, "pixels": self.pixels(form), "hierarchy": self.labels}
            stage("pretrain", place, options, "--device", device, *words, **given)
            hook.remove()
            began, ended = times
            return (ended - began) / (last - 1)

        return turn


def timms(steps, device, name, arguments, side, crop, batch, micro, precision, compiled) -> Callable[[], float]:
    """The same of timm's training script, with its defaults for speed: channels last, foreach or fused by torch."""
    import timm.optim

    model = timm.create_model(name, num_classes=CLASSES, **(arguments or {}))
    model = model.to(device, memory_format=torch.channels_last).train()
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9, weight_decay=5e-4)
    forward, clock, size = torch.compile(model) if compiled else model, clock_of(device), micro or batch
    images = torch.randn(batch, 3, crop, crop, device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device) % CLASSES

    def step() -> None:
        optimizer.zero_grad()
        for some, truth in zip(images.split(size), labels.split(size), strict=True):
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
                loss = torch.nn.functional.cross_entropy(forward(some), truth)
            (loss * (size / batch)).backward()
        optimizer.step()

    def turn() -> float:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        step()
        began = clock()
        for _ in range(steps):
            step()
        return (clock() - began) / steps

    return turn


def rows(quick: bool, device: str, turns: int = 3) -> Iterator[dict]:
    goals = (1.0, 0.95) if device == "cuda" else (None, None)
    settings = (ON_GPU if device == "cuda" else ON_CPU)[: 1 if quick else None]
    turns, largest = 1 if quick else turns, max(batch for *_, batch, _, _, _ in settings)
    if device == "cpu":
        os.environ["GRANULARITY_READERS"] = "0"  # so that reading is of this process, whose time is counted
    made: dict[int, Images] = {}
    with tempfile.TemporaryDirectory() as name:
        for number, one in enumerate(settings):
            network, arguments, side, crop, batch, micro, precision, compiled = one
            made[side] = images = made.get(side) or Images(Path(name), (2 if quick else 4) * largest, side)
            model = {"name": network, "args": arguments, "stem": "timm"}
            work = f"train {network}, {crop} px, batch {batch}{f' of {micro}' if micro else ''}, {precision}"
            work += f"{', compiled' if compiled else ''}, {device}"
            recipe = {"batch_size": batch, "micro_batch": micro, "augment": {"flip": True, "crop": crop}}
            recipe |= {"precision": precision, "compile": compiled}
            ours, read = (images.training(form, recipe, model, device) for form in ("raw", "jpeg"))
            peer = timms(images.images // batch - 1, device, *one)
            seconds = in_turns({"ours": ours, "peer": peer}, turns)
            yield rated(f"{work} (images/s; timm's step)", seconds, batch, goals[0])
            if number == 0:
                seconds = in_turns({"ours": read, "peer": ours}, turns)
                yield rated(f"{work}, from JPEG (images/s; from memory)", seconds, batch, goals[1])
        yield from side_by_side(Path(name), device, *((2, 1, 1) if quick else (12, 20, turns)))


def side_by_side(folder: Path, device: str, networks: int, epochs: int, turns: int) -> Iterator[dict]:
    digits = {"source": "digits", "ranks": ["loops", "digit"], "target": "loops", "train_size": 300}
    given = {"samples": stage("samples", folder / "samples", digits)}
    space = {"space": "loops", "family": "manual", "params": {"rank": "loops"}}
    given["hierarchy"] = stage("hierarchy", folder / "loops", space, **given)
    given["pixels"] = stage("pixels", folder / "pixels", {"size": 8, "mode": "L"}, samples=given["samples"])
    recipe = {"epochs": epochs, "warmup_epochs": min(2.4, epochs), "augment": {"flip": False, "pad": 1}}

    def train(jobs: int) -> None:
        for _ in range(jobs):
            number = next(numbers)
            runs = [f"loops-p{seed}-{100 * number + seed:08d}" for seed in range(networks // jobs)]
            options = {"recipe": recipe, "runs": runs}
            stage("pretrain", folder / f"side-by-side-{number}", options, "--device", device, **given)

    sides = {"ours": lambda: train(1), "peer": lambda: train(networks)}
    work = f"train {networks} networks on digits, {device} (networks/s; a job each)"
    yield rated(work, in_turns(sides, turns, clock_of(device)), networks)
