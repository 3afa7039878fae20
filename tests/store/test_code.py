"""Code and packages: what an edit or an upgrade makes again, and what it does not."""

import importlib.metadata
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from granularity import cli
from granularity.base import extensions
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import code
from support import default_run

PACKAGE = Path(code.__file__).parents[1]
DRAWN = ("kmeans", "manual", "random", "rebalanced", "regrouped")
WHOLE = default_run.config(duplicates={"by": "pixels"})  # every stage
OF_ALL = {name for name, record in STAGES.items() if not record.of_study}  # stages of every configuration
SECTIONS = tuple(extensions.code("section", name) for name in extensions.names("section"))
# One job of every stage, by what makes its result: the stage, and what its options chose by name.
CODE = {
    **{stage: (record.module,) for stage, record in STAGES.items()},
    "samples": (STAGES["samples"].module, "granularity.stages.samples.sources.digits"),
    "embed": (STAGES["embed"].module, "granularity.learning.encoders.open_clip"),
    "hierarchy": (STAGES["hierarchy"].module, "granularity.stages.hierarchy.families.kmeans"),
    "pretrain": (
        STAGES["pretrain"].module,
        "granularity.learning.training.objectives.labels",
        "granularity.learning.training.optimisers.sgd",
    ),
    "finetune": (STAGES["finetune"].module, "granularity.learning.training.optimisers.sgd"),
    "measure": (STAGES["measure"].module, "granularity.stages.measure.measures.probe"),
    "report": (
        STAGES["report"].module,
        *SECTIONS,
        *(f"granularity.stages.hierarchy.families.{name}" for name in DRAWN),
    ),
    "theory": (STAGES["theory"].module, "granularity.stages.theory.worlds.label_granularity"),
    "verdicts": (STAGES["verdicts"].module, "granularity.stages.theory.worlds.label_granularity"),
}


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """A copy of the package that a test may edit; returns a function that edits and gives the changed stages."""
    copy = tmp_path / "granularity"
    shutil.copytree(PACKAGE, copy)
    monkeypatch.setattr(code, "ROOT", copy)

    def forget():
        code.code_digest.cache_clear()
        code._read.cache_clear()

    def digests():
        forget()
        return {stage: code.code_digest(*names) for stage, names in CODE.items()}

    before = digests()

    def edit(file, old, new):
        path = copy / file
        text = path.read_text() if path.exists() else ""
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else text + new)
        after = digests()
        changed = {stage for stage in before if before[stage] != after[stage]}
        before.update(after)
        return changed

    yield edit
    forget()


def test_the_code_of_a_job_of_every_stage_is_among_those_looked_at():
    plan = Plan(WHOLE)
    for stage in OF_ALL:
        assert CODE[stage] in [plan.code(job) for job in plan.jobs(stage)], stage


# How results are stored, planned, computed and looked at; and what is added beside what a result is made from.
NO_SCIENCE = [
    *("base/progress.py", "store/resume.py", "machine/processes.py", "plan/graph.py", "look/status.py"),
    *("config/options.py", "cli/__init__.py"),
    "stages/__init__.py",  # a line in the table of stages
    "stages/cluster/__init__.py",  # a record: its needs, its plan
    "stages/cluster/options.py",
    *(f"stages/{room}/one_more.py" for room in ("hierarchy/families", "samples/sources", "measure/measures")),
    *("stages/theory/worlds/one_more.py", "learning/training/objectives/one_more.py"),
]
EDITS = {
    "stages/cluster/stage.py": {"cluster"},
    "learning/data/augment.py": {"pretrain", "finetune", "measure"},  # what stages share
    "learning/training/loop.py": {"encoder", "pretrain", "finetune"},
    "stages/samples/sources/digits.py": {"samples"},
    "stages/cluster/kmeans.py": {"cluster"},
    "learning/training/optimisers/sgd.py": {"pretrain", "finetune"},
    "learning/training/optimisers/adamw.py": set(),
    "stages/hierarchy/families/kmeans.py": {"hierarchy", "report"},
    "learning/training/objectives/labels.py": {"pretrain"},
    "stages/measure/measures/probe.py": {"measure"},
    "stages/theory/stage.py": {"theory"},
    "stages/samples/sources/torchvision.py": set(),
    "stages/hierarchy/families/nested.py": set(),
    "stages/measure/measures/accuracy.py": set(),
    "learning/training/objectives/distil.py": set(),
}


def test_an_edit_changes_what_imports_the_file_and_of_what_is_chosen_by_name_the_chosen(edited):
    for file in NO_SCIENCE:
        assert edited(file, "", "EDITED = 1\n") == set(), file
    for file, stages in EDITS.items():
        assert edited(file, "", "EDITED = 1\n") == stages, file


def test_a_change_of_results_elsewhere_is_said_by_hand(edited, monkeypatch):
    monkeypatch.setattr(code, "RESULT_VERSION", code.RESULT_VERSION + 1)
    assert edited("base/progress.py", "", "EDITED = 1\n") == set(STAGES)


def test_comments_and_docstrings_do_not_count(edited):
    assert edited("stages/cluster/stage.py", '"""', '# words\n"""Other ') == set()


def test_a_file_of_the_users_counts_by_its_content(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from granularity.stages.hierarchy.labels import Labels\n")
    first = code.code_digest(str(file))
    assert "granularity.stages.hierarchy.labels" in code.import_closure(str(file))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(file, elsewhere)
    assert code.code_digest(str(elsewhere / "mine.py")) == first
    file.write_text(file.read_text() + "EDITED = 1\n")
    code.code_digest.cache_clear()
    code._read.cache_clear()
    assert code.code_digest(str(file)) != first


def test_what_a_file_of_the_users_imports_of_theirs_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text("import my_helper\nimport my_package.deep\n")
    parts = [tmp_path / name for name in ("my_helper.py", "my_package/__init__.py", "my_package/deep.py")]
    parts[1].parent.mkdir()
    digests = set()
    for part in [*parts, *parts]:
        part.write_text("import click\n" + ("EDITED = 1\n" if part.is_file() else ""))
        code.code_digest.cache_clear()
        code._read.cache_clear()
        digests.add(code.code_digest(str(file)))
    assert len(digests) == 6
    assert "click" in code.packages(str(file))


def test_a_file_of_the_users_imports_those_beside_it_which_count(tmp_path):
    digests, values = set(), []
    for folder in ("one", "two"):
        file, helper = tmp_path / folder / "mine.py", tmp_path / folder / "helper_of_mine.py"
        file.parent.mkdir()
        file.write_text('from helper_of_mine import VALUE\nEXTENDS = "world"\n')
        helper.write_text(f"VALUE = '{folder}'\n")
        extensions.load([file])
        values.append(extensions.find("world", "mine").VALUE)
        digests.add(code.code_digest(str(file)))
    extensions.load([])
    assert values == ["one", "two"] and len(digests) == 2
    assert "helper_of_mine" not in sys.modules and str(file.parent) not in sys.path


def test_templates_count(edited):
    css = next(path for path in (PACKAGE / "stages/report").rglob("*.css"))
    assert edited(str(css.relative_to(PACKAGE)), "{", "{ ") == {"report", "gather"}


def test_no_stage_imports_another():
    for stage, record in STAGES.items():
        others = {other.module for other in STAGES.values()} - {record.module}
        assert not code.import_closure(record.module) & others, stage


def test_what_was_parsed_is_kept_and_believed_only_where_it_is_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "mine.py"
    file.write_text("import json\n# words\nx = 1\n")

    def read():
        code._read.cache_clear()
        return code._read(file)

    first = read()
    assert first == (["json"], "import json\nx = 1")
    parsed = []
    monkeypatch.setattr(code, "_parsed", lambda content: parsed.append(content) or first)
    (kept,) = (tmp_path / "cache/granularity/parsed").iterdir()
    assert read() == first and parsed == []
    kept.write_text(kept.read_text().replace("x = 1", "x = 2"))
    assert read() == first and len(parsed) == 1 and "x = 2" not in kept.read_text()
    file.write_text("x = 3\n")
    read()
    assert parsed[1:] == [b"x = 3\n"]


# ---------------------------------------------------------------- packages


TRAINED = {"pretrain", "finetune", "measure"}
CLIP = {"encoder", "embed"}
JUDGED = {"theory", "verdicts"}
# What an upgrade of each package makes again in the default run: by hand, from what the stages compute with.
MADE_AGAIN = {
    "faiss-cpu": {"cluster", "duplicates"},
    "Jinja2": {"report"},
    "matplotlib": {"report", *JUDGED},
    "numpy": OF_ALL,
    "open_clip_torch": CLIP,
    "pillow": {"samples", "pixels", "duplicates", "report"} | TRAINED | CLIP,
    "pyarrow": OF_ALL - {"cluster", "duplicates", *JUDGED},
    "scikit-learn": {"samples", *JUDGED},
    "scipy": {"samples", "report", *JUDGED},
    "timm": TRAINED | CLIP,
    "torch": TRAINED | CLIP | JUDGED,
    "torchvision": CLIP,
    "pydantic": set(),
    "granularity": set(),  # a release
    "snakemake": set(),
}


@pytest.fixture
def upgrade(monkeypatch):
    """Make a package look as if another version were installed: upgrade(name)."""
    installed = importlib.metadata.version
    caches = (code._version, code.packages)

    def forget():
        for cache in caches:
            cache.cache_clear()

    def to_another(package):
        assert installed(package)
        monkeypatch.setattr(
            importlib.metadata,
            "version",
            lambda name: f"{installed(name)}.post1" if name.lower() == package.lower() else installed(name),
        )
        forget()

    yield to_another
    forget()


def made_by(plan: Plan) -> dict[str, str]:
    """What manifests say of the code and the packages of every job."""
    codes = {plan.stamp(job): plan.code(job) for stage in STAGES for job in plan.jobs(stage)}
    return {stamp: f"{code.code_digest(*modules)} {code.packages(*modules)}" for stamp, modules in codes.items()}


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {stamp for stamp in before if before[stamp] != after[stamp]}


def third_party(folder: Path) -> dict[str, str]:
    """Third-party modules that a folder of Python imports, each with a file that does."""
    own = {*sys.stdlib_module_names, code.PACKAGE}
    files = ((name.split(".")[0], file) for file in sorted(folder.rglob("*.py")) for name in code._read(file).imports)
    return {name: str(file.relative_to(PACKAGE)) for name, file in files if name not in own}


@pytest.mark.parametrize("room", code.SCIENCE)
def test_every_package_that_the_science_imports_counts_or_is_said_not_to(room):
    imported = third_party(PACKAGE / room)
    assert imported or room == "claims"
    unknown = {name: file for name, file in imported.items() if name not in code.PACKAGES and name not in code.SILENT}
    assert unknown == {}
    assert not set(code.PACKAGES) & set(code.SILENT)
    # Each counts by the name that it is installed under, as its version is asked by that.
    installed = importlib.metadata.packages_distributions()
    for name in imported.keys() & code.PACKAGES.keys():
        assert {*installed[name]} & {*code.PACKAGES[name]}, name


def test_an_upgrade_makes_again_what_computes_with_the_package(upgrade):
    plan = Plan(WHOLE)
    stage_of = {plan.stamp(job): stage for stage in STAGES for job in plan.jobs(stage)}
    before = made_by(plan)
    for package, stages in MADE_AGAIN.items():
        upgrade(package)
        assert {stage_of[stamp] for stamp in changed(before, made_by(plan))} == stages, package


def test_another_python_makes_everything_again_and_another_patch_of_it_nothing(upgrade, monkeypatch):
    plan = Plan(WHOLE)
    before = made_by(plan)
    for version, again in ((("3", "99", "0"), set(before)), ((*platform.python_version_tuple()[:2], "99"), set())):
        monkeypatch.setattr(platform, "python_version_tuple", lambda version=version: version)
        code.packages.cache_clear()
        assert changed(before, made_by(plan)) == again


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize("arguments", [["--help"], ["cluster", "--help"], ["status"]])
def test_help_and_planning_do_not_import_torch(arguments):
    script = (
        "import sys; from granularity import cli\n"
        f"sys.argv = ['granularity', *{arguments!r}]\n"
        "try: cli.app()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'faiss', 'open_clip', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=PACKAGE.parents[1])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")])
def test_too_little_memory_is_one_line(monkeypatch, capsys, error):
    def app():
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(cli.interrupt, "install", lambda: None)
    with pytest.raises(SystemExit):
        cli.main()
    assert "error: out of memory; give the job more" in capsys.readouterr().err
