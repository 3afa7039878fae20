# Configuration checked once, and the few helpers that rules need. Paths come from granularity.plan.jobs alone.
import json
import os
import shlex
import signal
import sys

from snakemake.exceptions import WorkflowError

from granularity.plan import jobs as plan
from granularity.store.artifacts import Artifact
from granularity.store.code import code_digest
from granularity.config.files import validate
from granularity.base.errors import GranularityError
from granularity.plan.resources import memory_mb, minutes, threads as cpus, uses_gpu
from granularity.stages.samples import ADAPTERS
from granularity.stages.theory import WORLDS

try:
    CONFIG = validate(config, (*workflow.configfiles, *workflow.overwrite_configfiles))
    CONDITIONS = {plan.condition_name(c): c for c in CONFIG.conditions}
    SPACES = {
        name: {s.name: s for s in plan.spaces(CONFIG, c)}
        for name, c in CONDITIONS.items()
    }
    UNITS = {
        stage: {name: plan.units(CONFIG, c, stage) for name, c in CONDITIONS.items()}
        for stage in ("pretrain", "finetune", "probe")
    }
except GranularityError as error:
    raise WorkflowError(str(error)) from None

ROOT = plan.root(CONFIG)
ENV = f"../envs/{'gpu' if CONFIG.device == 'cuda' else 'cpu'}.yaml"
SEED = CONFIG.seeds.base
# for the report's record of how it was made
os.environ.setdefault("GRANULARITY_COMMAND", shlex.join(["snakemake", *sys.argv[1:]]))
# Slurm's warning before a job's end is for the stage, which saves its work; Snakemake, around it, would die of it.
if "SLURM_JOB_ID" in os.environ:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
# `--cache` is for the stages, which verify what they find (granularity.store.cache); Snakemake itself would trust it.
if workflow.enable_cache:
    if workflow.workflow_settings.cache:
        raise WorkflowError(
            "--cache takes no names of rules here: it shares embeddings, clusterings and label spaces"
            " (a target right behind it is taken for one; put targets first)"
        )
    # Snakemake warns where it names no folder.
    os.environ.update(GRANULARITY_CACHE=os.environ.get("SNAKEMAKE_OUTPUT_CACHE", ""))


wildcard_constraints:
    condition="train-[^/]*",
    clustering="(whole|superclass|class)-[-0-9]*",
    space="[^/]*",
    unit="[^/]*",


def manifest(kind, **values):
    """The manifest of an artifact, which stands for all of it; wildcards not given stay open."""
    pattern = f"{plan.PATHS[kind]}/manifest.json".replace("{root}", ROOT)
    for name, value in values.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def files(kind):
    """The data files that every artifact of a kind has."""
    return [manifest(kind).replace("manifest.json", name) for name in plan.FILES[kind]]


def captioned(folder, suffix, captions):
    """Files of the report with the captions that Snakemake's own report shows."""
    place = manifest("report").replace("manifest.json", folder)
    return [
        (f"{place}/{name}.{suffix}", f"../report/captions/{caption}.rst")
        for name, caption in captions.items()
    ]


def record(folder, kind):
    """A log or benchmark file beside the results, named like the artifact."""
    return plan.record(kind, folder).replace("{root}", ROOT)


def options(section):
    """A section as JSON. A function, as Snakemake takes braces in a parameter that is a text for wildcards."""
    text = json.dumps(section.model_dump(mode="json"), separators=(",", ":"))
    return lambda wildcards: text


def code(kind):
    return code_digest(plan.MODULES[kind])


def every(kind):
    """The manifests of all artifacts of a kind."""
    return [manifest(kind, **values) for values in plan.targets(CONFIG, kind)]


def flags(option, name):
    """An option once for each file of a named input; nothing where there is none."""

    def of_job(wildcards, input):
        paths = getattr(input, name, [])
        return [
            f"{option} {path}"
            for path in ([paths] if isinstance(paths, str) else paths)
        ]

    return of_job


def train_size(wildcards):
    return CONDITIONS[wildcards.condition].train_size


def trained_encoder(wildcards):
    return (
        manifest("encoder", condition=wildcards.condition)
        if CONFIG.encoder.trained_here
        else []
    )


def space_of(wildcards):
    return SPACES[wildcards.condition][wildcards.space]


def space_family(wildcards):
    return space_of(wildcards).family


def space_params(wildcards):
    return json.dumps(space_of(wildcards).params, separators=(",", ":"))


def clusterings_of_space(wildcards):
    names = plan.clusterings([space_of(wildcards)])
    return [
        manifest("clusters", condition=wildcards.condition, clustering=name)
        for name in names
    ]


def runs_of(stage, wildcards):
    return UNITS[stage][wildcards.condition][wildcards.unit]


def spaces_of_unit(wildcards):
    names = dict.fromkeys(run.space for run in runs_of("pretrain", wildcards))
    return [
        manifest("label_space", condition=wildcards.condition, space=name)
        for name in names
    ]


def pretrained_for(stage, wildcards):
    """The pretraining jobs that hold the backbones of a finetuning or probing job."""
    needed = {(run.space, run.pretrain_seed) for run in runs_of(stage, wildcards)}
    return [
        manifest("pretrain", condition=wildcards.condition, unit=unit)
        for unit, runs in UNITS["pretrain"][wildcards.condition].items()
        if any((run.space, run.pretrain_seed) in needed for run in runs)
    ]


def pretrained_for_finetune(wildcards):
    return pretrained_for("finetune", wildcards)


def pretrained_for_probe(wildcards):
    return pretrained_for("probe", wildcards)


def code_of_world(wildcards):
    return f"{code_digest(WORLDS[wildcards.world])} {code_digest('granularity.stages.theory.stage')}"


def parts_of_world(wildcards):
    parts = range(CONFIG.theory.parts)
    return [
        manifest("theory_runs", world=wildcards.world, part=str(part)) for part in parts
    ]


def theory_results():
    """The worlds whose results lie there: the report shows them as they are, and does not make them again.

    A parameter and not an input, so that a report never waits for minutes of simulation; the digest makes the report
    again when the results have changed.
    """
    found = []
    for path in (manifest("theory", world=world) for world in WORLDS):
        if os.path.exists(path):
            try:
                found.append(f"--theory {path}@{Artifact.peek(path).digest[:12]}")
            except GranularityError as error:
                print(
                    f"warning: {error} (the report leaves it out)",
                    file=sys.stderr,
                )
    return found


def pretrain_run_names(wildcards):
    return ",".join(run.name for run in runs_of("pretrain", wildcards))


def finetune_run_names(wildcards):
    return ",".join(run.name for run in runs_of("finetune", wildcards))


def probe_run_names(wildcards):
    return ",".join(run.name for run in runs_of("probe", wildcards))


def memory_of(kind):

    def of_job(wildcards, attempt):
        return memory_mb(CONFIG, kind, dict(wildcards.items()), attempt)

    return of_job


def minutes_of(kind):

    def of_job(wildcards, attempt):
        trainings = len(runs_of(kind, wildcards)) if kind in UNITS else 1
        return minutes(CONFIG, kind, dict(wildcards.items()), trainings, attempt)

    return of_job


def threads_of(kind):

    def of_job(wildcards):
        return cpus(CONFIG, kind, dict(wildcards.items()))

    return of_job


def gpus_of(kind):
    return int(uses_gpu(CONFIG, kind))
