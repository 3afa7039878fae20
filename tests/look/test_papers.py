"""The page over all results: every claim and every published row is on it, whatever was run."""

import csv
import re
from pathlib import Path

import pandas as pd
import pytest

from granularity.base import extensions, strict_yaml
from granularity.base.errors import GranularityError
from granularity.claims import experiments as about
from granularity.claims import published
from granularity.config import files
from granularity.look.papers import answers, claims, figures, numbers, page
from granularity.look.papers.experiments import OTHERS, Experiment
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds import feature_emergence
from granularity.stages.verdicts import stage as verdicts
from granularity.store import place
from granularity.store.artifact import Artifact
from granularity.store.task import Task
from support import arm_tables, browser, tiny_chain, worlds
from support.checkout import ROOT
from support.tiny_chain import WORLD

ERRORS = {("manual", 3): 6.0, ("manual", 10): 5.0, ("manual", 40): 5.5, ("random", 10): 5.9, ("kmeans", 10): 5.8}


def table(root: Path, name: str) -> list[dict[str, str]]:
    with open(root / name, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def judge(name: str, study: str) -> Path:
    """The verdicts of a study on made-up errors, as the stage leaves them."""
    stage, folder = STAGES["verdicts"], Path("results") / name / "verdicts" / study
    found = extensions.find("study", study).judge(arm_tables.tables(ERRORS, classes=3))
    with Task(stage, folder, stage.model(study=study)).create({}, {"study": study}, ("study",)) as writer:
        verdicts._write(writer, list(found))
    return folder


RUN, EMERGENCE = "inat2021-resnet50", "feature_emergence"


def simulate_main() -> None:
    """The main setting of feature emergence, cut to a few steps and samples, and its verdicts."""
    cut = {"seeds": 2, "d": 60, "D": 50, "m": 10, "n": 300, "test": 100, "batch": 50, "steps": 12}
    (main,) = (arm for arm in feature_emergence.SIZES["paper"] if arm.name == "main")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(feature_emergence.SIZES, "tiny", [main.model_copy(update=cut)])
        part = worlds.train(EMERGENCE, Path("results/theory") / EMERGENCE / "0")
        worlds.judge(EMERGENCE, [part], Path("results/theory/verdicts") / EMERGENCE)


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_results):
    """The page over verdicts of one configuration and two worlds, and over damaged ones of another configuration.

    A small chain that was really run lies where an experiment of the paper would, and its report in `mine`.
    """
    folder = tmp_path_factory.mktemp("papers")
    (folder / "config").symlink_to(ROOT / "config")
    (folder / "docs").symlink_to(ROOT / "docs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(claims, "COMMITTED", Path("none.csv"))
        judge("mine", "granularity_t5")
        with tiny_chain.tiny_world():
            part = worlds.train(WORLD, Path("results/theory") / WORLD / "0")
            worlds.judge(WORLD, [part], Path("results/theory/verdicts") / WORLD)
        simulate_main()
        for link, to in ((f"results/{RUN}", "tiny"), ("results/mine/report", "tiny/report")):
            Path(link).symlink_to(tiny_results[0] / "results" / to)
        damaged = judge("damaged", "granularity_one_pass")
        file = damaged / "checks.csv"
        file.chmod(0o644)
        file.write_text(file.read_text().replace("holds", "fails") + " ")
        _, counts = page.write(Path("results"))
    return folder / "results", counts


def test_every_claim_is_there_once_for_each_experiment(made):
    root, counts = made
    rows = table(root, "papers.csv")
    assert {row["paper"] for row in rows} == {*published.papers()}
    quantities = [(row["results"], row["study"], row["kind"], row["id"], row["quantity"]) for row in rows]
    assert len(set(quantities)) > 1000 and all(row["command"] for row in rows)
    papers = [row for row in rows if row["paper"] and "crossing" not in row["source"]]
    papers = [row for row in papers if "not in the paper" not in row["source"]]
    claims = {(row["paper"], row["id"]) for row in papers if row["kind"] == "claim"}
    assert sum(counts.values()) == len(claims)
    assert {f"V{number}" for number in range(1, 14)} <= {id for paper, id in claims if paper == "granularity"}
    untested = [row for row in rows if row["results"] not in ("mine", RUN) and row["study"] not in (WORLD, EMERGENCE)]
    assert {row["verdict"] for row in untested} == {"not tested"} and not any(row["measured"] for row in untested)
    assert {row["cost_is"] for row in untested} == {"planned"}
    (v7,) = (row for row in untested if row["results"] == "inat2021-resnet34" and row["id"] == "V7")
    assert v7["published"] == "8.762" and v7["command"].endswith("config/examples/inat2021_resnet34.yaml")
    assert "there is no folder 'data/inat2021'" in v7["missing"] and float(v7["gpu_hours"]) > 9000


def test_what_is_committed_stands_where_nothing_was_run(made, tmp_path, monkeypatch):
    """The rows of a page, given back to a page over no results, are there again, and said to be committed."""
    rows = [row for row in table(made[0], "papers.csv") if row["results"] == "mine" or row["study"] == WORLD]
    command = "snakemake verdicts --configfile config/examples/inat2021_resnet34.yaml"
    of_example = {"results": "inat2021-resnet34", "command": command}
    rows += [row | of_example for row in rows if row["results"] == "mine"]
    rows.append(
        rows[0] | {"kind": "identity", "quantity": "of the same id", "verdict": "fails", "of_quantity": "fails"}
    )
    pd.DataFrame(rows).to_csv(tmp_path / "committed.csv", index=False)
    monkeypatch.setattr(claims, "COMMITTED", tmp_path / "committed.csv")
    monkeypatch.chdir(made[0].parent)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/report").symlink_to((made[0] / "mine/report").resolve())
    _, counts = page.write(tmp_path)
    kept = {(row["results"], row["study"]) for row in rows}
    again = [row for row in table(tmp_path, "papers.csv") if (row["results"], row["study"]) in kept]
    assert sorted(again, key=str) == sorted(rows, key=str) and counts["holds"]
    text = (tmp_path / "papers.html").read_text()
    assert text.count("the project's own run, as committed") == 3 and "<strong>mine: granularity t5</strong>" in text
    assert re.findall(r'<td class="text">(judged[^<]*)</td>', text) == ["judged in the project&#39;s own run"]


JUDGED = {
    "images": ("mine/verdicts/granularity_t5", ("results", "mine"), ["mine"]),
    "a world": (f"theory/verdicts/{WORLD}", ("study", WORLD), [f"theory/{WORLD}", f"theory/verdicts/{WORLD}"]),
}


@pytest.mark.parametrize(("verdicts_of", "of", "folders"), JUDGED.values(), ids=JUDGED)
def test_what_was_judged_stands_as_it_was_judged(made, verdicts_of, of, folders):
    root, _ = made
    checks = table(root / verdicts_of, "checks.csv")
    rows = [row for row in table(root, "papers.csv") if row[of[0]] == of[1]]
    for name in ("id", "quantity", "measured", "interval_low", "band", "published", "why"):
        assert [row[name] for row in rows] == [row[name] for row in checks]
    summary = Artifact.open(root / verdicts_of).summary
    for kind, name in (("claim", "verdicts"), ("identity", "identities")):
        assert {row["id"]: row["verdict"] for row in rows if row["kind"] == kind} == summary[name]
    assert {"holds", "fails", "not tested"} <= set(summary["verdicts"].values())
    names = [name for folder in folders for name in place.find(root / folder)]
    spent = sum(Artifact.peek(name).manifest["cost"]["cpu_seconds"] for name in names)
    assert {row["cost_is"] for row in rows} == {"measured"}
    assert float(rows[0]["cpu_hours"]) == pytest.approx(spent / 3600, rel=1e-3)


def test_what_is_damaged_is_named_and_nothing_else_is_lost(made):
    root, _ = made
    text = (root / "papers.html").read_text()
    assert text.count("damaged/verdicts/granularity_one_pass/checks.csv: corrupt") == 1 and ".store" not in text
    (unread,) = re.findall(r"Unreadable files.*?</ul>", text, re.DOTALL)
    assert unread.count("<li>") == 1  # no experiment
    assert not [row for row in table(root, "papers.csv") if row["results"] == "damaged"]


def test_every_published_number_has_its_place(made):
    root, _ = made
    text = (root / "papers.html").read_text()
    rows = table(root, "papers_numbers.csv")
    known = [(paper, str(line)) for paper in published.papers() for line, _ in enumerate(published.read(paper), 2)]
    assert sorted((row["paper"], row["line"]) for row in rows) == sorted(known)
    assert all(row["ours"] or row["why"] for row in rows) and all(row["verdict"] for row in rows)
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and {f"{paper}-row-{line}" for paper, line in known} <= set(ids)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
    assert all(
        (root / link).is_file() for link in re.findall(r'href="([^#"][^"]*)"', text) if not link.startswith("data:")
    )
    assert not re.search(r"https?://", text.replace("http://www.w3.org/", ""))  # names of SVG, no addresses


def numbers_of(root: Path, **where: str) -> dict[str, str]:
    (found,) = (
        row for row in table(root, "papers_numbers.csv") if all(row[name] == cell for name, cell in where.items())
    )
    return found


def test_a_row_of_a_world_has_the_number_of_its_runs(made):
    runs = pd.read_parquet(made[0] / "theory/verdicts" / EMERGENCE / "runs.parquet")
    main = {"paper": EMERGENCE, "table": "T1", "metric": "test_accuracy_percent"}
    row = numbers_of(made[0], **main, arm="network")
    found = pd.Series(at(runs, "main", "test_acc", phase="network"))
    assert [float(row[name]) for name in ("ours", "ours_sd", "ours_n")] == pytest.approx(
        [found.mean(), found.std(), 2], rel=1e-5
    )
    assert row["size"] == "tiny" and "d 60, not 500" in row["unlike_size_paper"] and row["verdict"].endswith("(A5)")
    best = []
    for _, ends in runs[runs["phase"].str.startswith("tangent kernel ") & (runs["event"] == "end")].groupby("seed"):
        best.append(ends.sort_values("val_acc", ascending=False, kind="stable")["test_acc"].iloc[0])
    assert float(numbers_of(made[0], **main, arm="tangent kernel")["ours"]) == pytest.approx(sum(best) / 2, rel=1e-5)
    first = at(runs, "main", "cos_max", phase="two steps", step=1).mean()
    row = numbers_of(made[0], **main | {"metric": "cosine_max"}, arm="one step")
    assert float(row["ours"]) == pytest.approx(first, rel=1e-5)
    row = numbers_of(made[0], **main, arm="network, without structure")
    assert not row["ours"] and row["why"].endswith("--size paper --arm 'main, without structure'")


def test_a_row_of_images_has_the_number_of_its_experiment_and_beside_it_that_on_other_data(made):
    report = answers.results(made[0], RUN)
    results = report.table.set_index("space")
    t7 = {"paper": "granularity", "table": "T7"}
    row, random = numbers_of(made[0], **t7, arm="baseline"), numbers_of(made[0], **t7, arm="random", x="22")
    mean = f"{results.loc['target', 'mean']:.4g}"
    assert not row["ours"] and row["other_data"].startswith(f"{RUN}: target, G = 3: {mean}")
    theirs = "resnet50, inaturalist: 500,000 training images, target “supercategory” of 11 classes"
    assert f"{RUN} has results of resnet18, {report.images}; the paper's are of {theirs}. Give yours" in row["why"]

    def trained(row, *data):
        item = Experiment(RUN, Path("inat2021_resnet50.yaml"), {}, (), None, data)
        part = answers.EntryRows("granularity", "", about.Entry(), [], [item], [], [])
        return answers.trained(made[0], row, about.Source(), part, {RUN: report})

    (value,) = trained(row, "resnet18", "digits: * training images, *").values
    assert value.mean == pytest.approx(results.loc["target", "mean"]) and value.n == 2
    assert not trained(row, "resnet50", "digits: *").values  # another network
    why = trained(random, "resnet18", "digits: *").why
    assert "has no random of G = 22; the nearest is random-5, G = 5" in why
    near = {x: answers.exact(report.table, {"arm": "kmeans", "x": x}, about.Source()) for x in ("6.2", "7")}
    assert list(near["6.2"]["space"]) == ["kmeans-6"] and near["7"].empty  # within 5 % a G is the printed one
    row = numbers_of(made[0], paper="granularity", table="T5", arm="kmeans", x="22")
    assert not row["ours"] and row["why"].startswith("Not run. It lacks: ")
    assert f"kmeans-6, G = 6: {results.loc['kmeans-6', 'mean']:.4g}" in row["other_data"]


@pytest.mark.parametrize(("images", "as_there"), [("500,000", True), ("60", False)])
def test_claims_count_as_the_papers_only_on_its_images(images, as_there):
    item = Experiment(RUN, Path("inat2021_resnet50.yaml"), {}, (), None)
    words = f"inaturalist: {images} training images, target “supercategory” of 11 classes"
    claim = claims.JudgedClaim("V13", "", "", "claim", "holds", [])
    about = ([claim], None, "", (), words, False, ("resnet50",))
    group = claims.Group("granularity", "granularity_t7", RUN, True, True, *about)
    (part,) = (part for part in numbers.parts([item], [group]) if part.entry.study == group.study)
    assert (part.groups, part.elsewhere) == (([group], []) if as_there else ([], [group]))
    assert numbers.verdict(part, answers.Source()) == ("holds (V13)" if as_there else "not tested (V13)")


def test_a_figure_has_what_was_published_and_what_lies_here(made):
    points = pd.read_csv(made[0] / "papers_figures.csv")
    theirs = points[(points["figure"] == "Fig 4") & (points["panel"] == figures.PUBLISHED)]
    drawn = published.rows("granularity").query("figure == 'Fig 4'")  # those of Table 9, and the baseline of the text
    assert sorted(zip(theirs["x"], theirs["mean"], strict=True)) == sorted(zip(drawn["x"], drawn["mean"], strict=True))
    assert len(drawn) == len(published.read("granularity", "T9")) + 1
    names = {name for name in theirs["curve"] if name.startswith("k-means per superclass; clusters of CLIP")}
    assert {name.split()[-1] for name in names} == {"RN50", "ViT-L/14"} and theirs["curve"].nunique() == 4
    ours = points[(points["figure"] == "Fig 3") & (points["results"] == "mine")]
    table = answers.results(made[0], "mine").table
    table = table[(table["series"] != "one_pass") & table["granularity"].notna()]
    assert list(ours["mean"]) == pytest.approx(list(table["mean"])) and list(ours["x"]) == list(table["granularity"])
    text = (made[0] / "papers.html").read_text()
    assert "<code>snakemake --configfile config/examples/imagenet1k_resnet50_clip_rn50.yaml</code>" in text
    assert all((made[0] / f"papers_fig_{number}.svg").read_text() in text for number in (3, 4))


def test_a_name_that_the_world_does_not_have_is_one_line(made, monkeypatch, tmp_path):
    file, text = tmp_path / "experiments.yaml", (published.FOLDER / "experiments.yaml").read_text()
    monkeypatch.setattr(about, "FILE", file)
    world = answers.open_world(made[0], EMERGENCE)
    file.write_text(text.replace("near: small}", "near: smal}", 1))
    words = (
        f"{file}: feature_emergence.ours.1.near: the world 'feature_emergence' has no arm 'smal'; did you mean 'small'?"
    )
    with pytest.raises(GranularityError) as error:
        answers.check(EMERGENCE, about.read()[EMERGENCE].ours, world)
    assert error.value.args == (words,)
    with pytest.raises(GranularityError, match="runs of the world 'feature_emergence' have no column 'cos'"):
        answers.simulated(world, about.Source(arm=["main"], phase=["network"], measure=["cos"]))
    group = claims.Group(
        "p", "s", "theory", True, True, [claims.JudgedClaim("A5", "", "", "claim", "holds", [])], None, ""
    )
    part = answers.EntryRows("p", "", about.Entry(study=EMERGENCE), [], [], [group], [])
    assert numbers.verdict(part, about.Source(claims=["A5"])) == "holds (A5)"
    with pytest.raises(GranularityError, match="'feature_emergence' has no claim A55"):
        numbers.verdict(part, about.Source(claims=["A55"]))


def test_experiments_say_what_is_so():
    """The one place that says which experiment is about which rows names what there is, and the files agree."""
    studies = {
        Experiment("", file, {}, (), None).key: {
            study for _, says in files.read(file) for study in says.get("studies", [])
        }
        for pattern in OTHERS
        for file in ROOT.glob(pattern)
    }
    several = {one["study"] for one in strict_yaml.read(ROOT / "docs/results/claims.yaml")}
    known = [*extensions.names("study"), *extensions.names("world"), *several]
    for name, paper in about.read().items():
        held = {paper.entry_of(row) for row in published.read(name)}
        assert held == set(range(len(paper.rows)))  # every row fits one, and no entry is without rows
        assert set(paper.data) == {file for entry in paper.rows for file in entry.experiments}
        for entry in paper.rows:
            assert entry.study in [*known, ""] and (entry.study or entry.why)
            for file in entry.experiments:
                assert not entry.study or entry.study in studies[file]


def test_rows_of_images_lead_to_arms_of_their_experiments():
    """Label space and way of finetuning of every row are in the plan of the experiment that would give it, and so are
    the network and the images that its results must be of.
    """
    plans = {}
    for file in (ROOT / "config/examples").glob("i*.yaml"):
        plans[file.stem] = Plan(files.load(file, inputs=False))
    paper = about.read()["granularity"]
    for name, (architecture, *images) in paper.data.items():
        assert {one.model.name for one in plans[name].networks} == {architecture}
        found = {re.match(r"(\w+): [\d,]+ training images, target “(\w+)”", words).groups() for words in images}
        assert found == {(one.samples.source, one.samples.target) for one in plans[name].conditions}
    seen = 0
    for row in published.read("granularity"):
        source, entry = paper.source_of(row), paper.rows[paper.entry_of(row)]
        for plan in (plans[name] for name in entry.experiments):
            families = {space.name: space.family for one in plan.conditions for space in one.spaces}
            classes = {"T9": 1000}.get(row["table"], 11)  # of the target, where clusters are per superclass
            within = f"-superclass-{float(row['x'] or 0) / classes:g}"
            usual = {"manual": "manual", "baseline": "target", "one pass": "target"}
            usual |= {"random": f"random-{row['x']}", "kmeans": f"kmeans-{row['x']}"}
            usual |= {
                family: family.partition("_")[0] + within for family in ("kmeans_superclass", "random_superclass")
            }
            wanted = source.space.replace("{x}", row["x"]).partition(" (")[0] or usual[row["arm"]]
            assert wanted in {*families, *families.values()}, row
            assert set(source.transfers) & {one.name for one in plan.transfers}, row
            seen += 1
    assert seen > 160


def test_an_entry_that_is_wrong_is_named(monkeypatch, tmp_path):
    file = tmp_path / "experiments.yaml"
    monkeypatch.setattr(about, "FILE", file)
    text = (published.FOLDER / "experiments.yaml").read_text()
    file.write_text(text.replace("tables: [T6]", "table: [T6]", 1))
    with pytest.raises(GranularityError, match=r"experiments.yaml: rows.5.table: Extra inputs"):
        about.read()
    file.write_text(text.partition("neural_collapse:")[0])
    with pytest.raises(GranularityError, match="must have an entry for each of feature_contamination, "):
        about.read()


def test_one_verdict_over_several_experiments():
    verdicts = {"a": ["holds", "not significant"], "b": ["holds", "fails"], "c": ["fails", "not tested"]}
    verdicts |= {"d": ["reported", "not tested"], "e": ["not significant", "fails"]}
    of = [claims.JudgedClaim(id, "", "", "claim", one, []) for id, several in verdicts.items() for one in several]
    found = claims.folded([claims.Group("p", "s", "one", True, True, of, None, "")])
    assert found == {"a": "holds", "b": "holds and fails", "c": "fails", "d": "reported", "e": "fails"}
    assert claims.tally(found.values()) == {"holds": 1, "fails": 2, "holds and fails": 1, "reported": 1}
    bands = [("holds", "> 0"), ("not tested", "> 0"), ("not tested", "reported, no band")]
    part = claims.JudgedClaim("a", "", "", "claim", "holds", [{"verdict": one, "band": band} for one, band in bands])
    assert part.in_part == "1 of 2 quantities tested"
    assert numbers.tables_of("Appendix, Tables 2, 5 and 9; Table 1, Theorem 5.1") == {"T1", "T2", "T5", "T9"}


@pytest.mark.browser
def test_one_can_choose_a_paper_and_a_verdict(made, tmp_path):
    """In a browser: the rows that are left, no sideways scroll of a narrow page, and nothing in the console."""
    script = """
      const form = page.querySelector("form"), numbers = page.querySelector("#numbers form");
      const left = rows => [...page.querySelectorAll(rows)].filter(row => row.offsetParent);
      const choose = (paper, verdict) => {
        form.paper.value = paper;
        form.verdict.value = verdict;
        form.dispatchEvent(new Event("input"));
        return left("#claims tr[data-verdict]").length + " " + form.querySelector("output").textContent;
      };
      out.holds = choose("granularity", "holds");
      out.none = choose("neural_collapse", "holds");
      out.all = choose("*", "*");
      numbers.ours.value = "yes";
      numbers.words.value = "t1 RANDOM";
      numbers.dispatchEvent(new Event("input"));
      const said = numbers.querySelector("output").textContent;
      out.ours = left("#numbers tr[data-ours]").map(row => row.id).join(" ") + " " + said;"""
    found = browser.look(made[0] / "papers.html", tmp_path, 600, script)
    rows = [row for row in table(made[0], "papers.csv") if row["paper"]]
    holding = [row for row in rows if (row["paper"], row["verdict"]) == ("granularity", "holds")]
    every, held = (
        len({(row["results"], row["study"], row["kind"], row["id"]) for row in some}) for some in (rows, holding)
    )
    assert int(found.pop("width")) <= 600
    known = [row for row in table(made[0], "papers_numbers.csv") if row["paper"] == EMERGENCE and row["ours"]]
    random = [row["line"] for row in known if (row["table"], row["arm"]) == ("T1", "random features")]
    ids = " ".join(f"{EMERGENCE}-row-{line}" for line in random)
    assert found.pop("ours") == f"{ids} {len(random)} shown" and len(random) == 3
    assert found == {"holds": f"{held} {held} shown", "none": "0 0 shown", "all": f"{every} {every} shown"}
