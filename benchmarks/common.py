"""What the works share: rows, turns, stages run by their commands, and photographs to run them on."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import granularity  # noqa: F401  (says which loops libraries take)

# isort: split
import numpy as np

from granularity.base.kernels import PINNED, POOLS

ROOT = Path(__file__).parents[1]
DISTINCT = 64  # photographs that differ: what they show does not matter to a speed


def row(work: str, ours: float, peer: float, ratio: float, goal: float | None = None, **more: Any) -> dict[str, Any]:
    """One measurement.

    Args:
        work: What was done, in which unit `ours` and `peer` are, and who the peer is.
        ratio: How many times as good as the peer; with `at_most=True`, a share, the less the better.
        goal: The least (`at_most`: the largest) ratio that is aimed at.
    """
    return {"work": work, "ours": ours, "peer": peer, "ratio": ratio, "goal": goal, **more}


def rated(work: str, seconds: Mapping[str, float], count: float, goal: float | None = None) -> dict[str, Any]:
    """A row of rates, from the seconds in which `ours` and `peer` did `count` things."""
    return row(work, count / seconds["ours"], count / seconds["peer"], seconds["peer"] / seconds["ours"], goal)


def clock_of(device: str) -> Callable[[], float]:
    """CPU seconds of this process, which a busy machine leaves alone; on a GPU seconds of wall clock."""
    if device != "cuda":
        return time.process_time
    import torch

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now


wall = time.perf_counter  # seconds of a clock on the wall, for processes that use all cores


def in_turns(
    works: Mapping[str, Callable[[], Any]], turns: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """The least seconds of each work (or what it returns, if a float), of so many turns of all."""
    least = dict.fromkeys(works, np.inf)
    for _ in range(turns):
        for name, work in works.items():
            began = clock()
            returned = work()
            least[name] = min(least[name], returned if isinstance(returned, float) else clock() - began)
    return least


def stage(name: str, output: Path, options: Mapping[str, Any], *words: str, **inputs: Path | list[Path]) -> Path:
    """Run a stage in this process, by the words of its command; returns where its result lies."""
    from granularity.cli import main

    given = [(f"--{role}", str(path)) for role, paths in inputs.items() for path in np.atleast_1d(paths)]
    command = ["granularity", name, "--options", json.dumps(options), "--output", str(output), *words]
    with mock.patch.object(sys, "argv", [*command, *(word for pair in given for word in pair)]):
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"stage {name} has failed") from ended
    return output


CORES = len(os.sched_getaffinity(0))
# Before a script that imports torchvision: its wheel is for CUDA, and lacks its operators beside a torch without it.
OPERATORS = """
import torch
if torch.version.cuda is None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def _free() -> dict[str, str]:
    """The environment of a user, who has set neither loops nor threads."""
    return {key: value for key, value in os.environ.items() if key not in {*PINNED, *POOLS}}


def jobs(commands: Sequence[Sequence[Any]], at_once: int = CORES) -> None:
    """Run commands of ours, each in a process of its own, so many at a time, as Snakemake does."""

    def run(words: Sequence[Any]) -> None:
        subprocess.run([sys.executable, "-m", "granularity", *map(str, words)], env=_free(), check=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(run, commands))


def script(code: str, *words: Any) -> str:
    """Run a peer's script in a process of its own, with the libraries' own defaults; returns what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, words)]
    return subprocess.run(command, env=_free(), check=True, stdout=subprocess.PIPE, text=True).stdout


def jpegs(count: int, width: int, height: int) -> list[bytes]:
    """Photographs: those of Tiny ImageNet in $GRANULARITY_DATA, enlarged, or else pictures of waves."""
    from PIL import Image

    file = Path(os.environ.get("GRANULARITY_DATA", "."), "tiny-imagenet", "train.parquet")
    if file.is_file():
        import pyarrow.parquet as pq

        column = pq.read_table(file, columns=["img"]).column("img").combine_chunks().field("bytes")
        stored = (io.BytesIO(column[i].as_py()) for i in np.linspace(0, len(column) - 1, count).astype(int))
        images = (Image.open(one).convert("RGB").resize((width, height), Image.Resampling.BICUBIC) for one in stored)
    else:
        sys.path.insert(0, str(ROOT / "tests"))
        from support.photographs import photograph

        images = (photograph(number, width, height) for number in range(count))
    found = []
    for image in images:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=95)
        found.append(file.getvalue())
    return found


def data_set(folder: Path, images: int, files: list[bytes], classes: int = 2) -> Path:
    """Make stage `samples` of a Parquet data set of so many images, and as many more as there are files to validate."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir(parents=True)
    for split, count in {"train": images, "test": len(files)}.items():
        rows = [{"bytes": files[i % len(files)], "path": None} for i in range(count)]
        kinds, leaves = (
            [f"{rank} {i % many}" for i in range(count)] for rank, many in (("kind", 2), ("leaf", classes))
        )
        table = pa.table({"image": rows, "kind": kinds, "leaf": leaves})
        pq.write_table(table, folder / "data" / f"{split}.parquet", row_group_size=1000)
    options = {"source": "parquet", "root": str(folder / "data"), "ranks": ["kind", "leaf"], "target": "kind"}
    return stage("samples", folder / "samples", options)
