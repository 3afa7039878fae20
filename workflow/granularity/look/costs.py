"""What a run will cost on this machine: short trials of its stages on generated pictures, once per machine."""

import contextlib
import hashlib
import io
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Set
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from granularity.base import extensions, kernels
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Job
from granularity.learning.runs import Run
from granularity.machine.device import machine
from granularity.plan.fresh import Results
from granularity.plan.graph import ConditionPlan, Plan
from granularity.stages import STAGES
from granularity.store import hashing, lock
from granularity.store.artifact import canonical_json
from granularity.store.code import code_digest, packages
from granularity.store.task import Task, make

VERSION = 2  # of how trials are timed: what an earlier one recorded on this machine does not count
STEP = {"cpu": 2e10, "cuda": 2e13}  # floating-point operations of a trial step, at most, roughly
STEPS, LARGEST, SMALLEST = 4, 128, 4  # steps of a trial epoch; most and fewest images of a step
GROUPS, KINDS = 4, 16  # classes of the two ranks of the trial images
NEIGHBOURS = 7  # most processes that run beside a trial: jobs that run side by side slow each other
TOGETHER = 12  # most networks of a trial job: more are not trained side by side
EMBEDDED = 8  # images for trying an encoder
LIGHT, HEAVY = "hierarchy", "pretrain"  # stages whose start is timed: without and with torch
LATER = {LIGHT: "", HEAVY: ", timm, torch._dynamo"}  # what such a job imports later
BACKWARD = 3  # operations of a training step, in forward passes
# Options that do not change a trial, because it sets its own.
LEFT_OUT = ("runs", "keep", "init", "network", "transfer", "name", "epochs", "objective", "from_epoch", "other_data")
LEFT_OUT += ("of", "ranks", "splits")
FRESH = {"micro_batch": None, "epochs": 2, "warmup_epochs": 0.0, "hold_epochs": 0.0}


class Cost(NamedTuple):
    """Seconds on one CPU or one GPU: once per network or encoder, and for each image of a pass."""

    once: float
    each: float


class Stage(NamedTuple):
    """What is left to make of a stage: its jobs, and their seconds (None: not known)."""

    name: str
    jobs: int
    seconds: float | None


class Kept(NamedTuple):
    """A result of a training in the store."""

    run: str  # its id
    epoch: int
    weights: bool  # whether it has the weights


class Costs:
    """The costs of a plan's jobs.

    `operations`: floating-point operations of a forward pass of one image, by network.
    """

    def __init__(self, plan: Plan, operations: Mapping[str, float]):
        self.plan, self.operations = plan, operations
        self.device = "cuda" if "gpu" in machine(plan.config.device) else "cpu"
        self._costs: dict[str, Cost | None] = {}
        self._counted: dict[str, dict[str, int]] = {}
        self._identities: dict[int, str] = {}  # by the id of a job
        self._made_of: dict[int, dict[str, Path]] = {}  # by the number of images of a step
        self._own = ""  # subfolder of a process that runs beside this one

    def stages(self, kept: set[Kept], made: set[str]) -> Iterator[Stage]:
        """Yield what is left to make of each stage; `kept` are the results of trainings in the store.

        Adds what it counts to `kept` and `made`, so that the jobs of other cells that want the same only start.
        """
        results = Results(self.plan)
        for name in STAGES:
            jobs = [job for job in self.plan.jobs(name) if "condition" in job.values and not _there(results, job)]
            found = [self._job(job, kept, made) for job in jobs]
            if jobs:
                yield Stage(name, len(jobs), None if None in found else sum(found) + len(jobs) * self.start(name))

    def missing(self, job: Job, kept: Set[Kept]) -> int:
        """Return how many trainings of a job lack the results that it wants: an epoch, or its weights."""
        return sum(not wanted <= kept for wanted in self._wanted(job))

    def _wanted(self, job: Job) -> Iterator[set[Kept]]:
        options = self.plan.options(job)
        last, weights = options.recipe.epochs, options.keep is not False  # pretraining always keeps its last weights
        epochs = {last, *(options.keep if job.stage == "pretrain" else ())}
        for name in options.runs:
            yield {Kept(Run.parse(name).id, epoch, weights) for epoch in epochs}

    def training(self, job: Job, data: ConditionPlan) -> float | None:
        """Return the seconds of one training of a job on the images of a condition."""
        images = self._images(data, "train")
        cost = self._tried(job) if images else None
        return cost and cost.once + cost.each * images * job.options["recipe"]["epochs"]

    def start(self, stage: str) -> float:
        """Return the seconds that a job of a stage takes to start."""
        like = HEAVY if "torch" in packages(STAGES[stage].module) else LIGHT

        def tried() -> Cost:
            before = os.times()
            command = [sys.executable, "-c", f"import granularity.cli, {STAGES[like].module}{LATER[like]}"]
            subprocess.run(command, check=True, capture_output=True)
            after = os.times()
            seconds = after.children_user - before.children_user + after.children_system - before.children_system
            return Cost(seconds, 0.0)

        cost = self._known(["start", like], f"the start of a job ({like})", tried)
        return cost.once if cost else 0.0

    def _job(self, job: Job, kept: set[Kept], made: set[str]) -> float | None:
        """Return the seconds of a job after its start; add it to `kept` and `made`."""
        condition = self.plan.condition(job.values["condition"])
        if job.stage in ("pretrain", "finetune"):
            missing = self.missing(job, kept)
            kept |= set().union(*self._wanted(job))
            (samples,) = job.inputs["samples"]
            seconds = self.training(job, self.plan.condition(samples.values["condition"])) if missing else 0.0
            return None if seconds is None else missing * seconds
        if job.stage not in ("encoder", "embed", "measure") or job.passes == 0:
            return 0.0
        if (same := self._identity(job)) in made:
            return 0.0
        made.add(same)
        images = self._images(condition, *(["train"] if job.stage == "encoder" else []))
        cost = self._tried(job) if images else None
        if cost is None:
            return None
        passes = {"embed": 1, "measure": len(job.options.get("runs", ()))}
        return cost.once + cost.each * images * passes.get(job.stage, self.plan.config.encoder.captions.epochs)

    def _identity(self, job: Job) -> str:
        """Return a hash of a job's stage, options, base seed and inputs."""
        if id(job) not in self._identities:
            inputs = {role: [self._identity(one) for one in jobs] for role, jobs in job.inputs.items()}
            about = canonical_json([job.stage, dict(job.options), self.plan.config.seeds.base, inputs])
            self._identities[id(job)] = hashlib.sha256(about.encode()).hexdigest()
        return self._identities[id(job)]

    def counted(self, condition: ConditionPlan) -> dict[str, int]:
        """Return the number of images of each split; empty if the sample table is missing or outdated."""
        if condition.name not in self._counted:
            (job,) = self.plan.jobs("samples", condition=condition.name)
            current = _there(Results(self.plan), job)
            self._counted[condition.name] = self.plan.summary(condition).get("images", {}) if current else {}
        return self._counted[condition.name]

    def _images(self, condition: ConditionPlan, *splits: str) -> int:
        counted = self.counted(condition)
        return sum(count for split, count in counted.items() if split in (splits or counted)) or condition.images or 0

    # ------------------------------------------------------------ trials

    def _tried(self, job: Job) -> Cost | None:
        """Return the cost of a job's stage with its options, from a trial unless one is recorded; None if it fails.

        All jobs with several networks are tried with the same number of networks, and every objective as labels.
        """
        options = {key: value for key, value in job.options.items() if key not in LEFT_OUT}
        if "recipe" in options:  # as tried: trainings that differ only in length cost the same
            options["recipe"] = {**options["recipe"], **FRESH}
        runs = len(job.options.get("runs", ()))
        operations = BACKWARD * self.operations.get(job.values.get("network"), 0.0)
        count = TOGETHER if runs > 1 and operations * TOGETHER * LARGEST / STEPS < STEP[self.device] else 1
        batch = int(min(LARGEST, max(SMALLEST, STEP[self.device] / max(1.0, count * operations))))
        if "recipe" in job.options or job.stage == "encoder":
            batch = min(batch, job.options.get("recipe", options.get("captions"))["batch_size"])
        model = self._network(job).model.model_dump(mode="json") if "network" in job.values else None
        pixels = self.plan.config.pixels.model_dump(mode="json")
        key = [job.stage, options, model, count, pixels, code_digest(*self.plan.code(job))]
        name = job.values.get("measure") or job.values.get("network") or self.plan.config.encoder.model
        return self._known(
            key, f"{job.stage} ({name})", lambda: getattr(self, f"_try_{job.stage}")(job, count, batch), batch
        )

    def _known(self, key: list, what: str, tried: Any, batch: int = 0) -> Cost | None:
        about = canonical_json(
            [
                VERSION,
                *key,
                machine(self.plan.config.device),
                lock.host(),
                packages("granularity.learning.encoders.open_clip"),
            ]
        )
        name = f"{hashlib.sha256(about.encode()).hexdigest()}.json"
        if name not in self._costs:
            cost = hashing.recall("costs", name)
            if cost is None:
                say(f"timing {what}")
                try:
                    with contextlib.redirect_stderr(io.StringIO()), self._beside(tried, batch):
                        cost = tried()
                    hashing.note(list(cost), "costs", name)
                except Exception as error:  # an unknown cost is not an error
                    say(f"its cost is unknown: {str(error).strip().partition(chr(10))[0]}")
            self._costs[name] = cost and Cost(*cost)
        return self._costs[name]

    @contextlib.contextmanager
    def _beside(self, tried: Any, batch: int) -> Iterator[None]:
        """Run the same trial in other processes meanwhile, because the cores of a working machine are busy."""
        if batch:
            self._inputs(batch)  # shared with those processes
        children = []
        for number in range(1, min(NEIGHBOURS + 1, cores()) if self.device == "cpu" else 1):
            if not (child := os.fork()):
                self._own = str(number)
                with contextlib.suppress(BaseException):
                    tried()
                os._exit(0)
            children.append(child)
        try:
            yield
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    @cached_property
    def folder(self) -> Path:
        self._temporary = tempfile.TemporaryDirectory(prefix="granularity-costs-")
        kernels.limit(1)
        return Path(self._temporary.name)

    def _made(self, stage: str, name: str, options: Any, seed: int = 0, **inputs: Path) -> Path:
        """Run a stage in the folder of trials and return its result."""
        output, model = self.folder / self._own / "results" / name, STAGES[stage].model
        given = {role: (path,) for role, path in inputs.items()}
        on = self.plan.config.device
        make(Task(STAGES[stage], output, model.model_validate(options), given, seed, on, 1, machine(on)))
        return output

    def _inputs(self, batch: int) -> dict[str, Path]:
        """Make pictures of noise for `STEPS` steps of a batch, in the size that the configuration asks for."""
        if batch in self._made_of:
            return self._made_of[batch]
        import numpy as np
        from PIL import Image

        side, numbers = self.plan.config.pixels.size, np.random.default_rng(0)
        files = []
        for _ in range(KINDS):
            file = io.BytesIO()
            coarse = Image.fromarray(numbers.integers(0, 256, (8, 8, 3), np.uint8)).resize((side, side))
            coarse.save(file, "JPEG")
            files.append(file.getvalue())
        place = self.folder / "pictures" / str(batch)
        for split, count in (("train", STEPS * batch), ("val", KINDS)):
            for number in range(count):
                kind = number % KINDS
                at = place / split / f"group-{kind % GROUPS}" / f"kind-{kind}" / f"{number}.jpg"
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(files[kind])
        options = {"source": "folder", "root": str(place), "ranks": ["group", "kind"]}
        options["target"] = "kind"
        samples, squares = self._made("samples", f"samples-{batch}", options), self.plan.config.pixels
        pixels = self._made("pixels", f"pixels-{batch}", squares.model_dump(mode="json"), samples=samples)
        self._made_of[batch] = {"samples": samples, "pixels": pixels}
        return self._made_of[batch]

    def _network(self, job: Job) -> Any:
        return next(one for one in self.plan.networks if one.name == job.values["network"])

    def _timed(self, many: int, images: int, work: Any) -> Cost:
        """Time a training of `many` networks on `images` each, over all epochs: seconds per image from its steps, and
        once per network for everything else. A stack takes each step once, other networks one after another.
        """
        from torch.optim.optimizer import register_optimizer_step_post_hook

        times: list[float] = []
        hook, began = register_optimizer_step_post_hook(lambda *_: times.append(self._clock())), self._clock()
        try:
            work()
        finally:
            hook.remove()
        steps = statistics.median(later - earlier for earlier, later in itertools.pairwise(times)) * len(times)
        return Cost(max(0.0, self._clock() - began - steps) / many, steps / (many * images))

    def _clock(self) -> float:
        """Return CPU seconds, which other jobs do not affect; on a GPU, seconds of a wall clock."""
        if self.device == "cpu":
            return time.process_time()
        import torch

        torch.cuda.synchronize()
        return time.monotonic()

    @property
    def _seed(self) -> int:
        """A base seed of the present trial, so that no other trial has made its result."""
        return 1 + len(self._costs)

    def _pretrained(self, job: Job, many: int, batch: int, seed: int = 0) -> Path:
        """Pretrain networks for a trial of a job, or for a stage that starts from that job's networks."""
        (job,) = job.inputs.get("pretrain", (job,))[:1]
        given, space = self._inputs(batch), {"space": "kind", "family": "manual", "params": {"rank": "kind"}}
        labels = self._made("hierarchy", f"kind-{batch}", space, samples=given["samples"])
        model = self._network(job).model.model_dump(mode="json")
        options = {"recipe": {**job.options["recipe"], **FRESH, "batch_size": batch}, "model": model}
        options["runs"] = _runs(many)
        return self._made("pretrain", f"pretrain-{batch}-{many}", options, seed, **given, hierarchy=labels)

    def _try_pretrain(self, job: Job, many: int, batch: int) -> Cost:
        return self._timed(
            many, FRESH["epochs"] * STEPS * batch, lambda: self._pretrained(job, many, batch, self._seed)
        )

    def _try_finetune(self, job: Job, many: int, batch: int) -> Cost:
        given = self._inputs(batch) | {"pretrain": self._pretrained(job, many, batch)}
        options = {**job.options, "recipe": {**job.options["recipe"], **FRESH, "batch_size": batch}}
        options |= {"runs": _runs(many, "-f0"), "keep": False, "from_epoch": None, "other_data": False}
        work = partial(self._made, "finetune", "finetune", options, self._seed, **given)
        return self._timed(many, FRESH["epochs"] * STEPS * batch, work)

    def _try_measure(self, job: Job, many: int, batch: int) -> Cost:
        given = self._inputs(batch) | {"pretrain": self._pretrained(job, 2, batch)}
        options = {**job.options, "of": ["backbones"], "ranks": None, "splits": ["val"]}
        for run in _runs(2):  # the first also imports what the measure needs
            began = self._clock()
            self._made("measure", "measured", {**options, "runs": [run]}, self._seed, **given)
        return Cost(0.0, (self._clock() - began) / (STEPS * batch + KINDS))

    def _try_encoder(self, job: Job, many: int, batch: int) -> Cost:
        options = {**job.options, "captions": {**job.options["captions"], "epochs": 1, "batch_size": batch}}
        given = {"samples": self._inputs(batch)["samples"]}
        return self._timed(1, STEPS * batch, lambda: self._made("encoder", "encoder", options, **given))

    def _try_embed(self, job: Job, many: int, batch: int) -> Cost:
        import torch

        from granularity.learning.training.precision import computing
        from granularity.machine.device import torch_device

        encoder, place = self.plan.config.encoder, torch_device(self.plan.config.device)
        network = extensions.find("encoder", encoder.kind).trial(encoder, place)
        from PIL import Image

        images = torch.stack([network.transform(Image.new("RGB", (64, 64)))] * EMBEDDED).to(place)
        times = []
        for _ in range(3):
            began = self._clock()
            with torch.inference_mode(), computing(encoder.precision, place):
                network.encode(images)
            times.append(self._clock() - began)
        return Cost(0.0, min(times) / EMBEDDED)


def _runs(many: int, more: str = "") -> list[str]:
    return [f"kind-p{number}{more}-{number:08d}" for number in range(many)]


def _there(results: Results, job: Job) -> bool:
    try:
        return results.unlike(job) is None
    except GranularityError:
        return False


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
