"""What a user of all cores meets: jobs as Snakemake starts them beside scripts with their libraries' own defaults.

Seconds of a clock on the wall, with every process's start. Jobs of trainings and of the theory have one thread each, so
as many run side by side as there are cores; a peer has one process, all threads, and takes one thing after the other.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from common import CORES, OPERATORS, ROOT, data_set, in_turns, jobs, jpegs, rated, row, script, stage, wall

# network, its arguments, side, crop, batch, epochs of 1,024 images
TRAININGS = [
    ("resnet18", {"layers": [2, 2, 2, 2], "channels": [16, 32, 64, 128], "stem_width": 16}, 64, 56, 64, 10),
    ("vit_tiny_patch16_224", {"img_size": 64, "patch_size": 8}, 72, 64, 32, 1),
]
A_JOB, CLASSES, IMAGES = 3, 100, 1024  # trainings in a job of half a minute
TIMM = """
import json, sys
import timm, timm.optim, torch
name, arguments, crop, batch, steps, runs = sys.argv[1], json.loads(sys.argv[2]), *map(int, sys.argv[3:])
images = torch.randn(batch, 3, crop, crop).to(memory_format=torch.channels_last)
labels = torch.arange(batch) % 100
for _ in range(runs):
    model = timm.create_model(name, num_classes=100, **arguments).to(memory_format=torch.channels_last).train()
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9, weight_decay=5e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
"""
DECODE = """
import sys
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2
sizes = v2.Compose([v2.Resize(256), v2.CenterCrop(256), v2.ToImage()])
for images, _ in DataLoader(ImageFolder(sys.argv[1], sizes), batch_size=64, num_workers=int(sys.argv[2])):
    images.sum()
"""
PROBES = """
import sys, warnings
import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import LogisticRegression
warnings.simplefilter("ignore")
def regression(values, labels, classes, l2):
    two = classes == 2
    return LogisticRegression(C=(1 + two) / (l2 * len(values)), tol=1e-4, max_iter=10_000).fit(values, labels).coef_
work = []
for file in sys.argv[1:]:
    held = np.load(file)
    values = held["values"].astype(np.float64)
    values = (values - values.mean(0)) / values.std(0)
    for classes in (2, 20, 100):
        work += [(values, held["cluster"] % classes, classes, l2) for l2 in (1.0, 1e-1, 1e-2, 1e-3, 1e-4)]
Parallel(n_jobs=-1)(delayed(regression)(*one) for one in work)
"""
OUR_PROBES = """
import sys
import granularity
import numpy as np, torch
from granularity.base.kernels import limit
from granularity.machine.products import use_openblas
sys.path.insert(0, sys.argv[1])
limit(1)
torch.set_num_threads(1)
use_openblas()
import probes
from granularity.stages.measure.logistic import Problem
held = np.load(sys.argv[2])
cluster = torch.from_numpy(held["cluster"])
labels = [cluster % classes for classes in probes.RANKS]
problems = [Problem(i, classes, l2) for i, classes in enumerate(probes.RANKS) for l2 in probes.PENALTIES]
probes.fitted(torch.from_numpy(held["values"]), labels, problems)
"""
ALONE = """
import sys
import granularity
import torch
from granularity.base import extensions
from granularity.stages.theory import engine
torch.set_num_threads(1)
world, device = extensions.find("world", sys.argv[1]), torch.device("cpu")
engine._keep_memory()
with torch.no_grad(), engine._exact():
    for group in engine.groups(world.SIZES["quick"], device):
        for run in group:
            world.simulate([run], device)
"""
START = "import granularity, granularity.stages.{stage}.stage"


def started() -> Iterator[dict]:
    for stage_name in ("pretrain", "measure", "embed"):
        sides = {"ours": partial(script, START.format(stage=stage_name)), "peer": partial(script, "import torch")}
        seconds = in_turns(sides, 5, wall)
        what = f"start of a process of stage {stage_name} (seconds; import torch)"
        yield row(what, seconds["ours"], seconds["peer"], seconds["ours"] / seconds["peer"], 1.3, at_most=True)


def trained(folder: Path, quick: bool) -> Iterator[dict]:
    for training in TRAININGS[: 1 if quick else None]:
        yield from trained_as(folder / training[0], quick, *training)


def trained_as(folder, quick, name, arguments, side, crop, batch, epochs) -> Iterator[dict]:
    images = 2 * batch if quick else IMAGES
    samples = data_set(folder, images, jpegs(64, side * 4 // 3, side), CLASSES)
    pixels = stage("pixels", folder / "pixels", {"size": side, "mode": "RGB", "format": "raw"}, samples=samples)
    space = {"space": "leaves", "family": "manual", "params": {"rank": "leaf"}}
    labels = stage("hierarchy", folder / "leaves", space, samples=samples)
    recipe = {"epochs": epochs, "lr": 0.01, "warmup_epochs": 0, "batch_size": batch}
    recipe["augment"] = {"flip": True, "crop": crop}
    model = {"name": name, "args": arguments, "stem": "timm"}

    def ours(count: int, at_once: int = CORES) -> None:
        made = [f"leaves-p{number}-{next(NUMBERS):08d}" for number in range(count)]
        commands = []
        for at in range(0, count, A_JOB):
            options = {"recipe": recipe, "model": model, "runs": made[at : at + A_JOB]}
            words = ["--samples", samples, "--pixels", pixels, "--hierarchy", labels, "--device", "cpu"]
            output = folder / f"turn-{next(NUMBERS)}" / "pretrain"
            commands.append(["pretrain", *words, "--options", json.dumps(options), "--output", output])
        jobs(commands, at_once)

    def peer(count: int) -> None:
        script(OPERATORS + TIMM, name, json.dumps(arguments), crop, batch, epochs * images // batch, count)

    for count, goal in ((1, 0.95), (2 if quick else 12, 1.5)):
        sides = {"ours": partial(ours, count), "peer": partial(peer, count)}
        work = f"{count} training{'s' * (count > 1)} of {name}, {crop} px (per s; timm's step on all threads)"
        yield rated(work, in_turns(sides, 1, wall), count, goal)
    if not quick:
        yield speed_up(f"pretrain ({name})", partial(ours, 12))


def decoded(folder: Path, quick: bool) -> Iterator[dict]:
    count = 128 if quick else 3000
    files = jpegs(64, 500, 375)
    samples = data_set(folder / "made", count, files)  # so that each turn has a store of its own
    for number in range(count + len(files)):
        place = folder / "files" / f"c{number % 2}" / f"{number:05d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(files[number % len(files)])

    def ours(cores: int = CORES) -> None:
        words = ["--samples", samples, "--options", json.dumps({"size": 256, "mode": "RGB"}), "--threads", cores]
        jobs([["pixels", *words, "--output", folder / f"turn-{next(NUMBERS)}" / "pixels"]])

    sides = {"ours": ours, "peer": lambda: script(OPERATORS + DECODE, folder / "files", CORES)}
    work = f"decode and resize {count:,} JPEGs of 500 x 375 (images/s; torchvision, DataLoader)"
    yield rated(work, in_turns(sides, 1 if quick else 2, wall), count, 1.2)
    if not quick:
        yield speed_up("pixels", ours)


def probed(folder: Path, quick: bool) -> Iterator[dict]:
    import numpy as np
    import probes

    files = [folder / f"network-{number}.npz" for number in range(2 if quick else 4)]
    folder.mkdir()
    for number, file in enumerate(files):
        values, cluster = probes.features(300 if quick else 4000, 256, "cpu", seed=number)
        np.savez(file, values=values.numpy(), cluster=cluster.numpy())

    def ours() -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(lambda file: script(OUR_PROBES, ROOT / "benchmarks", file), files))

    sides = {"ours": ours, "peer": lambda: script(PROBES, *files)}
    work = f"15 regressions of each of {len(files)} networks (per s; scikit-learn, n_jobs=-1)"
    yield rated(work, in_turns(sides, 1, wall), 15 * len(files), 1.5)


def simulated(folder: Path, quick: bool) -> Iterator[dict]:
    world, parts = "feature_emergence", 4

    def ours(cores: int = CORES) -> None:
        place, options = folder / f"turn-{next(NUMBERS)}" / "theory", {"world": world, "size": "quick", "parts": parts}
        commands = []
        for part in range(parts):
            words = ["--options", json.dumps(options | {"part": part}), "--device", "cpu"]
            commands.append(["theory", *words, "--output", place / str(part)])
        jobs(commands, cores)

    sides = {"ours": ours, "peer": lambda: script(ALONE, world)}
    yield rated(f"theory: {world}, quick (per s; one run after the other)", in_turns(sides, 1, wall), 1, 1.8)
    if not quick:
        yield speed_up("theory", ours)


def speed_up(name: str, work: Callable[[int], None]) -> dict:
    seconds = in_turns({"ours": lambda: work(2), "peer": lambda: work(1)}, 1, wall)
    what = f"stage {name}, from one core to two (seconds; one core)"
    return row(what, seconds["ours"], seconds["peer"], seconds["peer"] / seconds["ours"], 1.8)


NUMBERS = iter(range(10**6))
PARTS = {"decoded": decoded, "trained": trained, "probed": probed, "simulated": simulated}


def rows(quick: bool, device: str, part: str = "") -> Iterator[dict]:
    sys.path.insert(0, str(ROOT / "tests"))
    if part in ("", "started"):
        yield from started()
    for name, work in PARTS.items():
        if part in ("", name) and not (quick and work is simulated):
            with tempfile.TemporaryDirectory() as folder:
                yield from work(Path(folder) / name, quick)
