"""What equal bytes cost: training steps and a forward with the pinned loops, beside torch's own choice of loops.

Each side is a process of its own on one thread: the pins decide before torch loads.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

from common import in_turns, rated

CODE = """
import os, sys, time
import granularity  # pins the loops
if sys.argv[1] == "free":
    from granularity.base.kernels import PINNED
    for name in PINNED:
        del os.environ[name]
import open_clip, timm, torch
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
if sys.argv[1] == "pinned":
    from granularity.machine.products import use_openblas
    use_openblas()
torch.manual_seed(0)
name, batch, side, turns = sys.argv[2], *map(int, sys.argv[3:])
images, labels = torch.randn(batch, 3, side, side), torch.randint(10, (batch,))
if name.startswith("ViT"):
    encoder = open_clip.create_model(name).eval()
    def work():
        with torch.inference_mode():
            encoder.encode_image(images)
else:
    sizes = {"img_size": side, "patch_size": 4} if name.startswith("vit") else {}
    network = timm.create_model(name, num_classes=10, **sizes)
    def work():
        cross_entropy(network(images), labels).backward()
seconds = []
for _ in range(turns + 1):
    began = time.perf_counter()
    work()
    seconds.append(time.perf_counter() - began)
print(min(seconds[1:]))
"""
WORKS = {  # a name of timm's is trained, one of open_clip's embeds: images, px
    "vit_tiny_patch16_224": (100, 32),
    "resnet18": (50, 64),
    "ViT-B-32": (32, 224),
}


def rows(quick: bool, device: str) -> Iterator[dict]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("CORETYPE", "CBWR"))}

    def seconds(loops: str, name: str, *numbers: int) -> float:
        words = [sys.executable, "-W", "ignore", "-c", CODE, loops, name, *map(str, numbers)]
        return float(subprocess.run(words, env=kept, check=True, stdout=subprocess.PIPE, text=True).stdout)

    for name, (images, side) in list(WORKS.items())[: 1 if quick else None]:
        images, turns = (2, 1) if quick else (images, 3)
        given = (name, images, side, turns)
        sides = {
            "ours": lambda given=given: seconds("pinned", *given),
            "peer": lambda given=given: seconds("free", *given),
        }
        what = "forward" if name.startswith("ViT") else "training step"
        work = f"{what} of {name}, {side} px, one core (images/s; torch's own loops)"
        yield rated(work, in_turns(sides, 1 if quick else 3), images, 1 / 1.05)
