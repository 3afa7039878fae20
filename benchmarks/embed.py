"""Images per second of stage `embed`, through its command, against what others take for the same.

    python benchmarks/embed.py [--images N] [--threads T] [--models small ViT-B-32] [--clip-retrieval PYTHON]

Peers, in turns with ours, with the same weights and threads:

- open_clip's bare forward (`encode_image`, normalised) on batches that are ready in memory: no image is read or
  decoded, so 1.0 is the most that can be reached. Goal 0.95.
- clip-retrieval's inference on the same files, as a process: reading, decoding, its forward, its writing. It wants
  `pip install clip-retrieval "setuptools<81"` in an environment of its own, whose Python is given. Goal 1.5.

Images are those of Tiny ImageNet, from GRANULARITY_DATA (see docs/development.md: `tiny-imagenet/train.parquet`), or
JPEGs of noise of the same size. Weights are random, which changes no time. Rates of ours and of clip-retrieval are
without starting Python and loading the model, and with it (`whole`). `cpu_ms` is CPU time per image, which a busy
machine leaves alone.

Prints a table, and one JSON object per row: `work`, `ours`, `peer`, `ratio`, `goal`. The default takes a minute or two;
ViT-B/32 on 5,000 images a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import open_clip
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from granularity.store.artifacts import Artifact

BATCH = 64
SMALL = {  # for images as small as these are
    "embed_dim": 128,
    "vision_cfg": {"image_size": 64, "patch_size": 8, "layers": 6, "width": 256, "head_width": 64},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1},
}


def jpegs(count: int) -> tuple[list[bytes], str]:
    """Small JPEGs, and what they are."""
    file = Path(os.environ.get("GRANULARITY_DATA", "."), "tiny-imagenet", "train.parquet")
    if file.is_file():
        column = pq.read_table(file, columns=["img"]).column("img").combine_chunks().field("bytes")
        return [column[i].as_py() for i in np.linspace(0, len(column) - 1, count).astype(int)], "Tiny ImageNet"
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        stream = io.BytesIO()
        small = Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8))
        small.resize((64, 64), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=90)
        found.append(stream.getvalue())
    return found, "JPEGs of noise"


def prepared(folder: Path, images: list[bytes]) -> None:
    """The images as single files for clip-retrieval, and as a Parquet file with a sample table for us."""
    (folder / "files").mkdir()
    (folder / "data").mkdir()
    for number, data in enumerate(images):
        (folder / "files" / f"{number:06d}.jpg").write_bytes(data)
    for split, part in {"train": images[1:], "test": images[:1]}.items():
        rows = [{"bytes": data, "path": None} for data in part]
        table = pa.table({"image": rows, "kind": [f"kind {i % 2}" for i in range(len(part))]})
        pq.write_table(table, folder / "data" / f"{split}.parquet", row_group_size=1000)
    source = {"source": "parquet", "root": str(folder / "data"), "ranks": ["kind"], "target": "kind"}
    run("samples", source, folder / "made" / "samples")


def run(stage: str, options: dict, output: Path, *words: str) -> float:
    """Run a stage by its command; the seconds of the whole process."""
    command = [sys.executable, "-m", "granularity", stage, "--options", json.dumps(options), "--output", str(output)]
    started = time.perf_counter()
    ended = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(ended.stderr)
    return time.perf_counter() - started


def model(folder: Path, name: str) -> tuple[str, Path]:
    """The configuration and a checkpoint of random weights of a model."""
    architecture = name
    if name == "small":
        config = folder / "small-clip.json"
        config.write_text(json.dumps(SMALL))
        open_clip.add_model_config(config)
        architecture = config.stem
    torch.manual_seed(0)
    weights = folder / f"{name}.pt"
    torch.save(open_clip.create_model(architecture).state_dict(), weights)
    return architecture, weights


class Ours:
    """The stage, through its command."""

    def __init__(self, folder: Path, name: str, architecture: str, weights: Path, images: int, **over):
        threads, processes = over.pop("threads"), over.get("processes", 1)
        given = str(folder / f"{architecture}.json") if name == "small" else name
        self.options = {"model": given, "pretrained": str(weights), "batch_size": BATCH, **over}
        self.words = ["--samples", str(folder / "made" / "samples"), "--device", over.pop("device", "auto")]
        self.words += ["--threads", str(threads * processes)]
        self.folder, self.images, self.turn = folder, images, 0

    def __call__(self) -> tuple[float, float | None, float | None]:
        """Images per second, without and with the start; CPU milliseconds per image."""
        self.turn += 1
        output = self.folder / f"turn-{time.monotonic_ns()}" / "embed"  # a store of its own, so it is made anew
        whole = run("embed", self.options, output, *self.words)
        made = Artifact.peek(output)
        self.digest, cost = made.digest, made.manifest["cost"]
        return self.images / cost["wall_seconds"], self.images / whole, 1000 * cost["cpu_seconds"] / self.images


def bare(architecture: str, weights: Path, images: list[bytes], threads: int, half: bool):
    """open_clip's forward on batches in memory."""
    torch.set_num_threads(threads)
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network, _, transform = open_clip.create_model_and_transforms(architecture, pretrained=str(weights), device=place)
    network.eval()
    batch = torch.stack([transform(Image.open(io.BytesIO(data)).convert("RGB")) for data in images[:BATCH]])
    batches = -(-len(images) // BATCH)

    def go() -> tuple[float, None, float]:
        ready = batch.to(place)
        with torch.inference_mode(), torch.autocast(place.type, torch.bfloat16, enabled=half):
            started, cpu = time.perf_counter(), time.process_time()
            for _ in range(batches):
                network.encode_image(ready, normalize=True)
            if place.type == "cuda":
                torch.cuda.synchronize()
        used = 1000 * (time.process_time() - cpu) / len(images)
        return len(images) / (time.perf_counter() - started), None, used

    return go


CLIP_RETRIEVAL = """
import sys, time, open_clip, torch
torch.set_num_threads(int(sys.argv[4]))
if sys.argv[6]:
    open_clip.add_model_config(sys.argv[6])
from clip_retrieval.clip_inference import mapper, worker
made = mapper.ClipMapper.__call__
times = []
def timed(self, item):
    times or times.append(time.perf_counter())
    return made(self, item)
mapper.ClipMapper.__call__ = timed
worker.worker([0], sys.argv[1], sys.argv[2], 1, batch_size=64, num_prepro_workers=int(sys.argv[5]), enable_text=False,
    clip_model="open_clip:" + sys.argv[3], use_jit=False)
print("seconds", time.perf_counter() - times[0], "torch", torch.__version__)
"""


def clip_retrieval(python: str, folder: Path, architecture: str, weights: Path, images: int, threads: int):
    """clip-retrieval's worker, on the files; timed from its first forward on."""

    def go() -> tuple[float, float, None]:
        output = folder / f"retrieval-{time.monotonic_ns()}"
        words = [str(folder / "files"), str(output), f"{architecture}/{weights}", str(threads), str(threads)]
        words.append(str(folder / f"{architecture}.json") if (folder / f"{architecture}.json").exists() else "")
        started = time.perf_counter()
        ended = subprocess.run([python, "-c", CLIP_RETRIEVAL, *words], capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(ended.stderr[-2000:])
        whole = time.perf_counter() - started
        (line,) = [line for line in ended.stdout.splitlines() if line.startswith("seconds ")]
        return images / float(line.split()[1]), images / whole, None

    return go


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="one more row: ours by so many processes")
    parser.add_argument("--models", nargs="+", default=["small"], help="small, or any architecture of open_clip")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--clip-retrieval", metavar="PYTHON", help="a Python that has clip-retrieval")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images, what = jpegs(given.images)
        prepared(folder, images)
        for one in given.models:
            architecture, weights = model(folder, one)
            options = {"threads": given.threads, "precision": given.precision}
            ours = Ours(folder, one, architecture, weights, len(images), **options)
            half = given.precision == "bfloat16"
            peers = {"open_clip, bare forward": (bare(architecture, weights, images, given.threads, half), 0.95)}
            if given.clip_retrieval:
                made = clip_retrieval(given.clip_retrieval, folder, architecture, weights, len(images), given.threads)
                peers["clip-retrieval"] = made, 1.5
            if given.processes > 1:
                several = Ours(folder, one, architecture, weights, len(images), **options, processes=given.processes)
                peers[f"ours, by {given.processes} processes"] = several, None
            mine, theirs = [], {peer: [] for peer in peers}
            for turn in range(given.turns):
                mine.append(ours())
                for peer, (go, _) in peers.items():
                    theirs[peer].append(go())
                print(f"# {one}, turn {turn + 1}: load {os.getloadavg()}", file=sys.stderr)
            for peer, (_, goal) in peers.items():
                rate, other = (median(found[0] for found in one) for one in (mine, theirs[peer]))
                row = {
                    "work": f"embed {len(images)} of {what}, {one}, {given.precision}, {given.threads} threads",
                    "peer_is": peer,
                    "ours": round(rate, 1),
                    "peer": round(other, 1),
                    "ratio": round(median(a[0] / b[0] for a, b in zip(mine, theirs[peer], strict=True)), 3),
                    "goal": goal,
                    "unit": "images/s",
                    "whole": [round(median(found[1] for found in several), 1) for several in (mine, theirs[peer])]
                    if theirs[peer][0][1]
                    else None,
                    "cpu_ms": [round(median(one[2] for one in several), 2) for several in (mine, theirs[peer])]
                    if theirs[peer][0][2]
                    else None,
                    "load": os.getloadavg()[0],
                }
                if peer.startswith("ours") and several.digest != ours.digest:
                    sys.exit("several processes made other bytes than one")
                rows.append(row)
    print(f"{'work':75} {'peer':28} {'ours':>8} {'peer':>8} {'ratio':>6} {'goal':>5}")
    for row in rows:
        goal = "" if row["goal"] is None else row["goal"]
        print(f"{row['work']:75} {row['peer_is']:28} {row['ours']:8} {row['peer']:8} {row['ratio']:6} {goal:>5}")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
