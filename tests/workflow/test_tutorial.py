"""The nine steps of docs/tutorial.md as printed, with few epochs, on photographs made on the spot."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import yaml

from granularity.store.artifact import Artifact
from support import browser, photographs

pytestmark = [pytest.mark.workflow, pytest.mark.browser]

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
STEPS = dict(enumerate(re.split(r"^\*\*\d\. ", PAGE, flags=re.MULTILINE)))
FOLDERS = ("bird/heron", "bird/swan", "mammal/otter", "mammal/fox")
FEW = {"epochs": 1, "warmup_epochs": 0.5}
SMALL = {"layers": [1, 1, 0, 0], "channels": [8, 8, 8, 8]}


def commands(step: int) -> list[list[str]]:
    blocks = re.findall(r"```\n(.*?)```", STEPS[step], re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_every_step_works_as_printed(checkout, monkeypatch):
    monkeypatch.chdir(checkout.folder)
    for name in FOLDERS:
        assert name in STEPS[1] or name == "mammal/fox"  # the page shows three of the folders
    for number in range(140):
        file = Path("photos") / FOLDERS[number % 4] / f"{number:04d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        photographs.photograph(number, 40, 30).save(file)

    def configure(more: str = "") -> None:
        (text,) = re.findall(r"```yaml\n(.*?)```", STEPS[2], re.DOTALL)
        says = yaml.safe_load(text.replace("  kmeans: [20]\n", f"  kmeans: [20]\n{more}"))
        # What costs minutes, and decides nothing of what the page says.
        says |= {"seeds": {"pretrain": 1}, "pretrain": FEW, "finetune": FEW, "pixels": says["pixels"] | {"size": 16}}
        says["encoder"]["captions"]["epochs"], says["model"]["args"] = 1, SMALL
        Path("config/mine.yaml").write_text(yaml.safe_dump(says))

    def do(step: int) -> list[str]:
        return [checkout.run(*command) for command in commands(step)]

    configure()
    plan, dry = do(3)
    assert "train-all: 4 label spaces" in plan and "make_encoder" in dry
    _, table = do(4)
    assert "kmeans-20" in table
    do(5)
    assert Path("results/mine/report/report.html").is_file()
    do(7)
    with browser.running() as chromium, browser.driven(chromium) as page:
        page.goto(Path("results/mine/explore/index.html").absolute().as_uri())
        page.goto(Path("results/mine/explore/train-all/cluster.html").absolute().as_uri())
        page.evaluate("explore.ready")
        for number, name in enumerate(("striped", "plain")):
            page.fill(f"#cluster-{number} input", name)
            page.click(f"#cluster-{number} form button")
        with page.expect_download() as download:
            page.click("#labels")
        download.value.save_as("config/labels.csv")

    trained = {file: file.stat().st_mtime_ns for file in Path("results/.store").glob("run/*/manifest.json")}
    (line,) = re.findall(r"```yaml\n(.*?)```", STEPS[8], re.DOTALL)
    configure(line)
    do(3)
    do(5)
    corrected = Artifact.open("results/mine/train-all/hierarchy/corrected").table("classes.parquet")
    assert {"striped", "plain"} <= set(corrected["name"])
    new = set(Path("results/.store").glob("run/*/manifest.json")) - set(trained)
    assert len(new) == 2 and all(file.stat().st_mtime_ns == made for file, made in trained.items())
    listing, labels, backbone = commands(9)
    names = [file.stem for file in Path().glob(listing[1]) for file in file.iterdir() if "corrected" in file.name]
    checkout.run(*labels)
    checkout.run(*(names[0] if word == "RUN" else word for word in backbone))
    assert len(pd.read_parquet("corrected.parquet")) == 112 and Path("out/model.safetensors").is_file()
