"""The report: statistics, words, figures and the page, on a synthetic tree of results."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import synthetic_results
from granularity.base.errors import GranularityError
from granularity.claims import claim
from granularity.claims.claim import Claim
from granularity.config.options import Config
from granularity.plan import jobs
from granularity.stages.report import drawing, figures, montage, page, stage, tables, words
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

SMALL = {
    "name": "small",
    "seeds": {"pretrain": 2, "finetune": 3},
    "conditions": [{"train_size": 120}, {"train_size": 240, "spaces": ["manual-digit", "kmeans-4"]}],
    "label_spaces": {
        "random": [4, 10],
        "random_superclass": [2],
        "kmeans": [4],
        "kmeans_superclass": [2, 3],
        "rebalanced": {"clusters": [2, 3], "thresholds": [12, 4]},
    },
}


def make(monkeypatch, folder: Path, over: dict | None = None, **options) -> tuple[Config, Path]:
    """Synthetic results and their report, in a working directory of their own."""
    monkeypatch.chdir(folder)
    config = Config.model_validate(SMALL | (over or {}))
    synthetic_results.write(config, **options)
    output = Path(jobs.root(config)) / "report"
    stage.run(config, output, output.with_suffix(".html"))
    return config, output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("report")
        config, output = make(monkeypatch, folder)
        yield config, folder / output


def text_of(output: Path) -> str:
    return (output / "report.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------- statistics


def test_welch_is_the_closed_form():
    arm, baseline = np.array([4.8, 5.1, 4.9, 5.3]), np.array([5.9, 6.2, 6.0, 5.7, 6.4])
    low, high, p = tables.welch(arm, baseline)
    a, b = arm.var(ddof=1) / len(arm), baseline.var(ddof=1) / len(baseline)
    freedom = (a + b) ** 2 / (a**2 / (len(arm) - 1) + b**2 / (len(baseline) - 1))
    difference, error = arm.mean() - baseline.mean(), np.sqrt(a + b)
    reach = stats.t.ppf(0.975, freedom) * error
    assert (low, high) == pytest.approx((difference - reach, difference + reach))
    assert p == pytest.approx(2 * stats.t.sf(abs(difference) / error, freedom))


@pytest.mark.parametrize("arm, baseline", [([5.0], [6.0, 6.1]), ([5.0, 5.0], [6.0, 6.0]), ([], [6.0, 6.1])])
def test_welch_without_a_measure_of_chance_says_so(arm, baseline):
    assert np.isnan(tables.welch(arm, baseline)).all()


def test_welch_where_one_side_has_no_spread():
    low, high, p = tables.welch([5.0, 5.0, 5.0], [6.0, 6.1, 6.2])
    assert low < -1.1 < high < 0 and 0 < p < 0.05


def test_holm_by_hand():
    adjusted = tables.holm([0.01, 0.04, 0.03, np.nan, 0.005])
    assert adjusted[[0, 1, 2, 4]] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert np.isnan(adjusted[3])
    assert tables.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert np.isnan(tables.holm([np.nan])).all()


def test_holm_holds_the_family_wise_error():
    p = np.random.default_rng(0).uniform(size=(4000, 10))
    false = np.mean([tables.holm(row).min() < 0.05 for row in p])
    assert false == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(
    "low, high, p, expected",
    [
        (-2.0, -1.0, 0.001, "better"),
        (-2.0, -0.1, 0.2, "better_unadjusted"),
        (-1.0, 1.0, 1.0, "overlap"),
        (0.0, 1.0, 0.05, "overlap"),
        (0.1, 1.0, 0.2, "worse_unadjusted"),
        (1.0, 2.0, 0.001, "worse"),
        (np.nan, np.nan, np.nan, "untested"),
    ],
)
def test_verdict(low, high, p, expected):
    assert tables.verdict(low, high, p) == expected
    assert expected in tables.VERDICTS


def test_results_against_the_runs(made):
    config, output = made
    results = pd.read_csv(output / "tables/results.csv")
    condition = config.conditions[0]
    finetune = pd.concat(
        Artifact.open(output.parent / jobs.condition_name(condition) / "finetune" / unit).table("runs.parquet")
        for unit in jobs.units(config, condition, "finetune")
    )
    baseline = finetune.loc[finetune["space"] == "target", "val_error"]
    arm = finetune[finetune["space"] == "kmeans-4"]
    row = results[(results["condition"] == "train-120") & (results["space"] == "kmeans-4")].iloc[0]
    test = stats.ttest_ind(arm["val_error"], baseline, equal_var=False)
    assert row["runs"] == 6 and row["backbones"] == 2
    assert row["difference"] == pytest.approx(arm["val_error"].mean() - baseline.mean())
    assert (row["low"], row["high"]) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert row["p"] == pytest.approx(test.pvalue)
    assert row["backbone_std"] == pytest.approx(arm.groupby("pretrain_seed")["val_error"].mean().std())
    assert (results["p_holm"].dropna() >= results["p"].dropna()).all()
    one_pass = results[(results["condition"] == "train-120") & (results["role"] == "one_pass")].iloc[0]
    assert one_pass["runs"] == config.seeds.pretrain * config.seeds.finetune


# ---------------------------------------------------------------- words


def test_words_follow_the_numbers(monkeypatch, tmp_path):
    effects = {"manual": -4.0, "random": 4.0, "kmeans": 0.0, "kmeans_superclass": 0.0}
    _, output = make(monkeypatch, tmp_path, effects=effects)
    results = pd.read_parquet(output / "tables/results.parquet")
    headline = words.headline(results)
    assert headline.startswith("Yes, for some labels: manual-digit (120 training images); manual-digit (240")
    assert "It hurt with random-4, random-10 and random-instance (120 training images)" in headline
    page_text = text_of(output)
    assert headline in page_text
    assert "do not tell" in page_text  # the arms without an effect

    _, output = make(monkeypatch, tmp_path, {"name": "reversed"}, effects={"manual": 4.0, "kmeans": 4.0})
    headline = words.headline(pd.read_parquet(output / "tables/results.parquet"))
    assert not headline.startswith("Yes") and "manual-digit" in headline.split("hurt with")[1]


def test_a_difference_that_only_chance_explains_is_not_sold():
    table = pd.DataFrame(
        {
            "condition": "c",
            "label": "10 training images",
            "space": ["target", "manual-fine", "random-9"],
            "series": ["manual", "manual", "random"],
            "role": ["baseline", "arm", "arm"],
            "granularity": [3, 9, 9],
            "difference": [0.0, -0.5, 0.1],
            "low": [np.nan, -0.9, -0.4],
            "high": [np.nan, -0.1, 0.6],
            "p": [np.nan, 0.04, 0.6],
            "backbone_high": [np.nan, 0.1, 0.9],
            "outcome": ["baseline", "better_unadjusted", "overlap"],
        }
    )
    said = words.headline(table)
    assert said.startswith("Not established: manual-fine") and "all 2 comparisons" in said
    assert words.tally(table)[1][0] == ("human labels", ["1 not told apart"])


def test_few_backbones_and_lucky_random_labels_are_told():
    table = pd.DataFrame(
        {
            "condition": "c",
            "label": "10 training images",
            "space": ["target", "manual-fine", "kmeans-9", "random-9"],
            "series": ["manual", "manual", "kmeans", "random"],
            "role": ["baseline", "arm", "arm", "arm"],
            "granularity": [3, 9, 9, 9],
            "high": [np.nan, -0.5, -0.3, -0.1],
            "backbone_high": [np.nan, -0.2, 0.4, 0.5],
            "p": [np.nan, 1e-4, 1e-3, 0.04],
            "outcome": ["baseline", "better", "better", "better_unadjusted"],
        }
    )
    said = words.headline(table)
    assert said.startswith("Yes, for some labels: manual-fine (10 training images) ended")
    assert "Less surely so: kmeans-9" in said
    assert "Labels that mean nothing were below the baseline too, random-9" in said
    assert words.headline(table.assign(backbone_high=np.nan)).startswith("Perhaps: manual-fine and kmeans-9")


def test_runs_without_spread_are_no_answer(monkeypatch, tmp_path):
    _, output = make(monkeypatch, tmp_path, {"seeds": {"pretrain": 1, "finetune": 1}})
    results = pd.read_parquet(output / "tables/results.parquet")
    assert set(results["outcome"]) == {"baseline", "untested"}
    assert words.headline(results).startswith("Not answered")
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", text_of(output), flags=re.DOTALL).lower().split()


def test_the_leak_is_told(made):
    assert "captions name the rank “digit”" in text_of(made[1])
    coarse = {"captions": {"granularity": "coarse"}}
    assert "“loops”" in words.leak(Config(encoder=coarse))
    assert "elsewhere" in words.leak(Config(encoder={"model": "ViT-L-14", "pretrained": "openai"}))


def test_listing_and_count():
    assert words.listing([]) == "none"
    assert words.listing("abc") == "a, b and c"
    assert (words.count(1, "run"), words.count(1200, "run")) == ("1 run", "1,200 runs")
    assert (words.signed(-0.5), page.number(None), page.p_value(1e-9)) == ("−0.50", "–", "< 0.001")


# ---------------------------------------------------------------- figures


def test_figures_are_the_same_bytes_again(made, monkeypatch, tmp_path):
    _, output = made
    _, again = make(monkeypatch, tmp_path)
    drawn = sorted(file.name for file in (output / "figures").iterdir())
    assert {f"{name}.svg" for name in ("granularity_curve", "differences", "probe", "class_sizes", "montage")} <= set(
        drawn
    )
    for name in drawn:
        first = (output / "figures" / name).read_bytes()
        assert first == (again / "figures" / name).read_bytes()
        assert b"<dc:date>" not in first and b"Matplotlib v" not in first
        ElementTree.fromstring(first)


def test_ids_of_figures_do_not_collide(made):
    ids = re.findall(r'<[a-zA-Z]+[^>]* id="([^"]+)"', text_of(made[1]))
    assert len(ids) == len(set(ids))


def test_text_in_figures_is_plain():
    assert drawing.shorten("a\nb\x00c") == "a b c"
    assert len(drawing.shorten("x" * 99, 20)) == 20


def test_the_montage_shows_the_images_of_the_cluster(made):
    config, output = made
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(output.parents[2])
        condition = stage.load(config, config.conditions[0])
    chosen = montage.choose([condition])
    assert chosen[1].name == "kmeans-superclass-2"
    rows = montage.rows(*chosen, count=3)
    sizes = [row.size for row in rows]
    assert len(rows) == 3 and sizes == sorted(sizes, reverse=True)
    for row in rows:
        members = condition.samples.iloc[row.members]
        assert (members["split"] == "train").all() and set(members["loops"]) == {row.superclass}
        assert sum(row.composition.values()) == pytest.approx(1)
        assert row.composition == members["digit"].value_counts(normalize=True).to_dict()


@pytest.mark.parametrize("channels, side", [(1, 8), (3, 200)])
def test_montage_of_grey_and_colour_of_any_size(channels, side):
    pixels = np.random.default_rng(0).integers(0, 256, (4, side, side, channels)).astype(np.uint8)
    row = montage.Row(0, 4, "$a", np.arange(4), {"<b>": 0.5, "c": 0.2, "d": 0.2, "e": 0.1})
    svg = montage.draw([row], pixels)
    assert "&lt;b&gt;: 50%" in svg and "1 more: 10%" in svg and "$a" in svg
    assert len(svg) < 150_000


def test_curve_of_any_granularity():
    for top in (13, 500_000):
        rows = [
            ("baseline", "manual", 11),
            ("arm", "manual", 12),
            ("arm", "random_instance", top),
            ("one_pass", "one_pass", 11),
        ]
        table = pd.DataFrame(rows, columns=["role", "series", "granularity"])
        table = table.assign(condition="c", label="c", mean=5.0, std=[0.1, np.nan, 0.2, 0.1])
        ElementTree.fromstring(figures.granularity_curve(table))


# ---------------------------------------------------------------- the page


def test_the_page_asks_nobody_and_is_whole(made):
    config, output = made
    text = text_of(output)
    assert text == (output.parent / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    assert "currentColor" in text and config.report.title in text
    for source in ("kmeans-superclass-2", "random-instance", "target (one pass)", "embedding", "snakemake"):
        assert source in text


def test_hostile_names_are_escaped(monkeypatch, tmp_path):
    over = {"report": {"title": "<img src=x onerror=alert(1)> & co"}}
    _, output = make(monkeypatch, tmp_path, over)
    text = text_of(output)
    assert "<script" not in text and "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; co" in text
    assert "&lt;script" in text  # the superclass in the montage


def test_verdicts_are_shown_beside_the_numbers(monkeypatch, tmp_path):
    config, _ = make(monkeypatch, tmp_path)
    rise = Claim("S1", "It rises", "Theorem 1", "slope", [1.9, 2.1], 1)
    falls = Claim("S2", "It <b>falls</b>", "Theorem 2", "slope", [], high=0)
    with judged(tmp_path / "world", "a_b", [rise, falls], size="quick") as out:
        out.text("figures/rise.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
        out.summary["runs"] = 3
    other = Claim("T1", "It helps", "Table 5", "gain", [3.0], 1, untested="another data set", published=[1.0, 2.0])
    with judged(tmp_path / "study", "c_d", [other, Claim("T2", "It is", "here", "sum", [0.0], 0, 0, kind="identity")]):
        pass
    stage.run(config, tmp_path / "again", tmp_path / "again.html", [tmp_path / "world", tmp_path / "study"])
    html = (tmp_path / "again.html").read_text()
    assert "a b" in html and "2 (1.9 to 2.1)" in html and "not run at this size" in html
    assert "It &lt;b&gt;falls" in html and "data:image/svg+xml;base64," in html
    assert "c d" in html and "another data set" in html and "1 to 2" in html
    text = " ".join(html.split())
    assert "Claims by verdict: holds: 1; not tested: 1." in text and "Claims by verdict: not tested: 1." in text
    assert "Identities, which only a mistake in the code can break: holds: 1." in text
    assert {"verdicts/a_b", "verdicts/c_d"} <= set(Artifact.open(tmp_path / "again").manifest["inputs"])


@contextlib.contextmanager
def judged(folder, study, claims, **params):
    code = ("granularity.stages.verdicts.stage",)
    with artifacts.create(folder, "verdicts", code, {}, {"study": study, **params}) as out:
        out.text("checks.csv", claim.table(claims).to_csv(index=False))
        out.summary |= {"verdicts": claim.verdicts(claims), "identities": claim.verdicts(claims, "identity")}
        yield out


def test_the_command_is_the_one_given(monkeypatch, tmp_path):
    monkeypatch.setenv("GRANULARITY_COMMAND", "snakemake --configfile 'a & b.yaml'")
    _, output = make(monkeypatch, tmp_path)
    assert "snakemake --configfile &#39;a &amp; b.yaml&#39;" in text_of(output)


def test_the_artifact_names_all_it_read(made):
    config, output = made
    report = Artifact.open(output, "report")
    assert report.params == config.model_dump(mode="json")
    found = {path for path in artifacts.find(output.parent) if path != output}
    assert {(output / entry["path"]).resolve() for entry in report.manifest["inputs"].values()} == found
    assert "train-120/label_space/kmeans-4" in report.manifest["inputs"]
    for name in ("results", "probe", "properties", "cost"):
        parquet = pd.read_parquet(output / f"tables/{name}.parquet")
        assert len(parquet) == len(pd.read_csv(output / f"tables/{name}.csv")) > 0
    assert all(artifact.digest in text_of(output) for artifact in report.lineage().values())


@pytest.mark.parametrize(
    "over",
    [
        {"conditions": [{"train_size": 120, "spaces": []}]},
        {"conditions": [{"train_size": "all", "spaces": ["random-4"]}], "report": {"montage_clusters": 0}},
        {"encoder": {"model": "ViT-L-14", "pretrained": "openai"}},
        {"jobs": {"pretrain": "run", "finetune": "space", "probe": "run"}},
    ],
    ids=["baseline only", "one family", "encoder from elsewhere", "small jobs"],
)
def test_parts_that_are_absent(monkeypatch, tmp_path, over):
    config, output = make(monkeypatch, tmp_path, over)
    assert (output / "figures/montage.svg").is_file()
    assert (output / "figures/encoder_loss.svg").is_file() == config.encoder.trained_here
    probe = pd.read_parquet(output / "tables/probe.parquet")
    assert not probe.duplicated(["condition", "space", "probe", "rank"]).any()


def test_missing_runs_are_an_error(monkeypatch, tmp_path):
    config, _ = make(monkeypatch, tmp_path)
    folder = Path("results/small/train-120/finetune/kmeans")
    table = Artifact.open(folder).table("runs.parquet")
    with artifacts.create(folder, "finetune", "granularity.store.artifacts", {}, {}) as out:
        out.table("runs.parquet", table.iloc[1:])
    with pytest.raises(GranularityError, match="train-120/finetune: lacks runs"):
        stage.load(config, config.conditions[0])


def test_a_flipped_byte_is_an_error(monkeypatch, tmp_path):
    config, output = make(monkeypatch, tmp_path)
    file = Path("results/small/train-120/label_spaces/kmeans-4/classes.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(GranularityError, match=r"classes\.parquet"):
        stage.run(config, output, output.with_suffix(".html"))


def test_published_numbers():
    table = tables.published(stage.PUBLISHED).set_index(["arm", "granularity"])
    assert len(table) == 34
    assert table.loc[("manual", 1103), "difference"] == pytest.approx(-0.46)
    assert "sic" in table.loc[("random", 352), "note"]
    assert tables.published(Path("nowhere.csv")).empty


# ---------------------------------------------------------------- in a browser


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_in_a_browser(made, tmp_path, width):
    """Nothing in the console, and no sideways scroll of the page: the width is measured in a frame of that width."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium to open the page in")
    (tmp_path / "report.html").write_bytes((made[1] / "report.html").read_bytes())
    (tmp_path / "frame.html").write_text(
        f"""<!doctype html><body style="margin:0">
        <iframe src="report.html" style="width:{width}px;height:800px;border:0"></iframe>
        <script>onload = () => {{
          const page = document.querySelector("iframe").contentDocument;
          page.querySelectorAll("details").forEach(part => part.open = true);
          document.body.dataset.width = page.documentElement.scrollWidth;
          document.body.dataset.sections = page.querySelectorAll("section").length;
        }}</script></body>"""
    )
    quiet = "--disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync"
    done = subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", *quiet.split(), "--enable-logging=stderr"),
            *("--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,900"),
            *("--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    measured = dict(re.findall(r'data-(width|sections)="(\d+)"', done.stdout))
    assert int(measured["sections"]) == 11 and int(measured["width"]) <= width
    assert "CONSOLE" not in done.stderr


def test_gpus_have_columns_where_one_was_used(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "hardware", lambda: {"cpu": "x", "gpu": "H200"})
    monkeypatch.setattr(artifacts, "gpu_memory", lambda: {"gpu_peak_memory_mb": 41_234.5})
    _, output = make(monkeypatch, tmp_path, {"conditions": [{"train_size": 120, "spaces": ["manual-digit"]}]})
    section = text_of(output).partition('id="cost"')[2].partition("</section>")[0]
    assert "Largest GPU memory of a job (MB)" in section and "41,234" in section
    table = pd.read_csv(output / "tables" / "cost.csv")
    assert (table["gpu_seconds"] == table["wall_seconds"]).all()
