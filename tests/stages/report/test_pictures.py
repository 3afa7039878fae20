"""Pictures of measures: which networks they show, in which order, and that a measure of one's own draws itself."""

import re

import pytest

from granularity.base import extensions
from granularity.config import options as config_options
from granularity.stages.report import snapshots
from support import synthetic_results

OWN = '''"""How many <features> there are."""
from matplotlib.figure import Figure

from granularity.base.section import Section

EXTENDS = "measure"
Options = Section


def measure(view, options, seed):
    yield "val", "number", 1.0


def draw(trainings, name):
    from granularity.stages.report import drawing

    with drawing.styled():
        figure = Figure()
        figure.text(0, 0, " ".join(f"{one.words} {one.state};" for part in trainings for one in part))
        return drawing.svg(figure, name, "numbers")
'''
DRAWN = ("collapse", "cluster_probe", "eigen_cam", "filters")
OVER = {"name": "pictured", "seeds": {"pretrain": 2, "finetune": 1}, "conditions": [{"train_size": 120}]}
OVER |= {"label_spaces": {"random": [4], "kmeans": [4]}}
OVER |= {"measures": [{"name": name, "of": ["untrained", "backbones"]} for name in DRAWN]}


@pytest.fixture
def made(monkeypatch, tmp_path):
    def make(**over):
        monkeypatch.chdir(tmp_path)
        plan = synthetic_results.write(config_options.build().model_validate(OVER | over))
        return plan, synthetic_results.write_report(plan)

    yield make
    extensions.load([])


def words(output, name: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", (output / f"figures/picture_{name}.svg").read_text())


def test_measures_with_arrays_are_drawn_over_training(made):
    plan, output = made()
    figures = {file.stem: file.read_bytes() for file in output.glob("figures/picture_*")}
    assert set(figures) == {f"picture_{name}" for name in DRAWN}
    section = (output / "report.html").read_text().partition('<section id="pictures">')[2].partition("</section>")[0]
    assert section.count("<figure") == 4 and "eigen_cam, 120 training images. Eigen-CAM of the last" in section
    assert "<script" not in section and "&lt;script" in section  # a class of that name, in a key
    collapse = words(output, "collapse")
    assert "target: R1 goes from 28.00 to 8.00 (shuffled labels: 1.01)" in collapse
    ticks = [word for word in collapse if word.startswith("digit ")][:10]  # by their target class, then by name
    assert ticks == [f"digit {i}" for i in (1, 4, 7, 0, 3, 6, 9, 2, 5, 8)]
    assert "target: number of regions goes from 28.00 to 8.00 (shuffled labels: 1.01)" in words(output, "eigen_cam")
    again = synthetic_results.write_report(plan, output.parent / "again")
    assert all((again / f"figures/{name}.svg").read_bytes() == svg for name, svg in figures.items())
    code = {stage: {name for job in plan.jobs(stage) for name in plan.code(job)} for stage in ("measure", "report")}
    drawer = "granularity.stages.report.pictures.collapse"
    assert drawer in code["report"] and drawer not in code["measure"]


def test_the_number_of_label_spaces_is_an_option(made):
    _, output = made(report={"pictures": 1})
    assert not [word for word in words(output, "filters") if word.startswith(("random", "kmeans"))]
    plan, output = made(name="none", report={"pictures": 0})
    assert not list(output.glob("figures/picture_*")) and 'id="pictures"' not in (output / "report.html").read_text()
    assert not any("report.pictures." in name for job in plan.jobs("report") for name in plan.code(job))


def test_a_measure_of_the_users_own_draws_itself(made, tmp_path):
    (own := tmp_path / "number.py").write_text(OWN)
    extensions.load([own])
    measures = [{"name": "number", "of": ["embedding", "untrained", "backbones"]}]
    plan, output = made(extensions=[str(own)], measures=measures, report={"pictures": 9})
    assert str(own) in {name for job in plan.jobs("report") for name in plan.code(job)}
    (shown,) = words(output, "number")
    assert shown.startswith("target untrained; target pretrained; ") and shown.endswith("embedding embedding;")
    assert "number, 120 training images. How many &lt;features&gt; there are." in (output / "report.html").read_text()


def test_at_most_five_states_are_shown_with_the_first_and_the_last():
    assert snapshots.evenly(3) == [0, 1, 2] and snapshots.evenly(7) == [0, 2, 3, 4, 6]
