"""The whole chain at its smallest, and what its commands and results promise.

Slow, because Snakemake and every stage run for real, in a copy of the checkout.
"""

import json
import shutil

import pytest

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.stages import STAGES
from granularity.store.artifact import Artifact
from support.checkout import SMOKE

pytestmark = pytest.mark.workflow

RESULTS = "results/smoke"
CHAIN = f"{RESULTS}/train-60"


def planned(output):
    """Rules with their numbers of jobs in a dry run."""
    lines = output[output.index("Job stats:") :].splitlines()[3:]
    table = (line.split() for line in lines[: lines.index("")] if line.strip())
    return {name: int(count) for name, count in table if name != "total"}


def test_it_ends_in_a_report_and_sound_artifacts(smoke):
    page = smoke.path(f"{RESULTS}/report/report.html").read_text()
    assert "<html" in page
    assert "all sound" in smoke.run("granularity", "verify", "results")
    assert "Nothing to be done" in smoke.snakemake("-n", *SMOKE)


def test_its_networks_were_trained_side_by_side(smoke):
    made = [Artifact.open(path.resolve()) for path in smoke.path(CHAIN).glob("pretrain/*/*") if path.is_symlink()]
    assert max(one.summary["stack"] for one in made) > 1


def test_status_calls_every_job_of_it_done(smoke):
    """So what `granularity status` expects of a manifest's parameters is what every stage records."""
    files = ["-f", "config/examples/smoke.yaml"]
    found = json.loads(smoke.run("granularity", "status", "--json", *files))
    assert found["total"]["done"] == found["total"]["jobs"], [job for job in found["jobs"] if job["state"] != "done"]
    logs = {str(path.relative_to(smoke.folder)) for path in smoke.path(f"{RESULTS}/logs").rglob("*.log")}
    assert {job["log"] for job in found["jobs"]} == logs


def test_every_named_target_exists(smoke):
    # `theory` makes its worlds anew; there are no verdicts, draws or duplicates here.
    targets = set(STAGES) - {"theory", "verdicts", "gather", "duplicates"}
    assert "Nothing to be done" in smoke.snakemake("-n", *targets, *SMOKE)


def test_the_papers_page_is_made_of_what_lies_there_and_trains_nothing(smoke):
    output = smoke.snakemake("papers", *SMOKE)
    assert planned(output) == {"papers": 1}
    assert "not tested" in output and "smoke" in smoke.path("results/papers.html").read_text()
    assert "Nothing to be done" in smoke.snakemake("-n", *SMOKE)


def test_who_asks_for_a_cache_is_told_of_the_shared_folder(smoke, monkeypatch):
    """Snakemake's own verifies nothing, and would serve what other code has made."""
    monkeypatch.setitem(smoke.environment, "SNAKEMAKE_OUTPUT_CACHE", str(smoke.folder))
    assert "--cache verifies nothing: share one results folder" in smoke.snakemake(*SMOKE, "--cache", code=1)


def test_results_that_move_are_sound_where_links_become_folders(smoke, tmp_path):
    """As after a copy to another machine: at another path, and with other times of the files."""
    shutil.copytree(smoke.path("results"), tmp_path / "elsewhere", copy_function=shutil.copyfile)
    assert "all sound" in smoke.run("granularity", "verify", str(tmp_path / "elsewhere"))


def test_as_a_module_with_a_prefix_it_finds_the_files_of_its_configuration(smoke):
    """The prefix is for results: the encoder's description lies where the configuration says."""
    module = smoke.path("module.smk")
    module.write_text(
        'configfile: "config/config.yaml"\n'
        "module granularity:\n"
        '    snakefile: "workflow/Snakefile"\n'
        "    config: config\n"
        '    prefix: "below"\n'
        "use rule * from granularity as of_*\n"
    )
    target = f"below/{CHAIN}/embed.stamp"
    output = smoke.snakemake("-n", "-p", "--snakefile", "module.smk", target, *SMOKE)
    module.unlink()
    assert planned(output) == {"of_make_samples": 1, "of_make_encoder": 1, "of_make_embed": 1}
    assert f"--samples below/{CHAIN}/samples " in output and f"--output below/{CHAIN}/embed " in output


def test_the_commands_of_rules_run_alone(smoke, tmp_path):
    """As they are, and what exists already is found; with another output, and it is made there."""
    target = f"{CHAIN}/hierarchy/kmeans-6"
    before, command = Artifact.open(smoke.path(target)), smoke.command_of(target, *SMOKE)
    smoke.run("bash", "-c", command)
    after = Artifact.open(smoke.path(target))
    assert (after.folder, after.manifest) == (before.folder, before.manifest)
    smoke.run("bash", "-c", command.replace(f"--output {target} ", f"--output {tmp_path / 'made'} "))
    made = Artifact.open(tmp_path / "made")
    assert made.digest == before.digest and made.manifest["cost"] != before.manifest["cost"]


def test_theory_is_planned_in_parts_and_simulates_one_setting(smoke, capsys):
    rules = planned(smoke.snakemake("-n", "theory", *SMOKE))
    assert rules == {"make_theory": 20, "make_verdicts": 5, "theory": 1}
    rules = planned(smoke.snakemake("-n", "theory_label_granularity", *SMOKE))
    assert rules == {"make_theory": 4, "make_verdicts": 1, "theory_label_granularity": 1}
    small = ["--set", "d=24", "--set", "k=4", "--set", "steps=3"]
    assert "loss" in smoke.run("granularity", "simulate", "label_granularity", *small)
    arm = ["--arm", "A fine", "--set", "steps=1", "--set", "seeds=1", "--set", "finetune_steps=0"]
    cli.app(["simulate", "label_granularity", *arm], standalone_mode=False)
    assert "ran all steps" in capsys.readouterr().out
    with pytest.raises(GranularityError, match="must be KEY=VALUE"):
        cli.app(["simulate", "label_granularity", "--set", "d"], standalone_mode=False)


def test_inspect_follows_the_lineage_to_the_raw_images(smoke):
    text = smoke.run("granularity", "inspect", f"{CHAIN}/finetune/target/resnet18/kmeans")
    for word in ("pretrain/resnet18/kmeans", "hierarchy/kmeans-6", "cluster/whole-6", "embed", "raw images: digits"):
        assert word in text
    assert f"{CHAIN}/embed" in smoke.run("granularity", "inspect", CHAIN)
