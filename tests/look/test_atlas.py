"""The atlas: differences and relations against other computations of them, what is refused, and where it is written."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.look import atlas
from granularity.look.folder import MARKER
from support import tasks, writing

ARMS = [atlas.BASELINE, "a", "b", "c", "d", "e"]


@pytest.fixture
def found() -> pd.DataFrame:
    """Four repetitions: `ordered` orders the errors, `noise` is drawn, `sizes` follows G alone."""
    rng, rows = np.random.default_rng(0), []
    for repetition in range(4):
        error, labels = rng.normal(size=6), rng.normal(size=(3, 6))
        values = {"error": error, "ordered": np.exp(error), "noise": rng.normal(size=6)}
        values |= dict(zip(atlas.LABELS, labels, strict=True)) | {"sizes": -(labels[0] ** 3)}
        name = f"results/{repetition}"
        rows += [(name, arm, key, one) for key, of in values.items() for arm, one in zip(ARMS, of, strict=True)]
    return pd.DataFrame(rows, columns=["repetition", "arm", "key", "value"])


def test_differences_are_paired_and_corrected_for_all(found):
    made, table = atlas.differences(found, ["noise", "error"]), atlas.tables(found)["noise"]
    told = stats.ttest_rel(table["b"], table[atlas.BASELINE])
    reach = told.confidence_interval(1 - 0.05 / 10)  # two keys, five arms
    row = made.loc[("noise", "b")]
    assert (row["low"], row["high"]) == pytest.approx((reach.low, reach.high))
    assert row["mean"] == pytest.approx(table["b"].mean()) and row["p"] >= told.pvalue


def test_units_that_share_pairs_have_the_jackknifes_error(found):
    """The reference leaves out each repetition with all its pairs."""
    pairs = np.random.default_rng(1).normal(size=(4, 4, 6))
    pairs += pairs.transpose(1, 0, 2)
    rows = []
    for one in range(4):
        values = np.delete(pairs[one], one, axis=0).mean(axis=0)
        rows += [(f"results/{one}", arm, "agreement/cka", value) for arm, value in zip(ARMS, values, strict=True)]
    table = pd.DataFrame(rows, columns=["repetition", "arm", "key", "value"])
    without = [np.delete(np.delete(pairs[..., 1] - pairs[..., 0], one, 0), one, 1) for one in range(4)]
    left = [part[np.triu_indices(3, 1)].mean() for part in without]
    error = np.sqrt(3 * np.var(left))
    row = atlas.differences(table[table["arm"].isin(ARMS[:2])], ["agreement/cka"]).loc[("agreement/cka", "a")]
    assert row["high"] - row["difference"] == pytest.approx(error * stats.t.ppf(0.975, 3))
    two = table[table["repetition"] < "results/2"]
    assert atlas.differences(two, ["agreement/cka"])["low"].isna().all()
    other, own = (
        atlas.relations(pd.concat([found, table.assign(key=key)]), [key]).loc[key] for key in ("cka", "agreement/cka")
    )
    assert (own["high"] - own["low"]).tolist() == pytest.approx(3 * (other["high"] - other["low"]))


def test_backbones_of_a_draw_count_as_one(found):
    """They share images and labels, so as many of them as one likes make no draw more."""
    folders = found.assign(repetition=found["repetition"].str.replace("results/", "draw-") + "/0")
    again = folders.assign(repetition=folders["repetition"].str.replace("/0", "/1"))
    for one in (folders, pd.concat([folders, again])):
        pd.testing.assert_frame_equal(atlas.differences(one, ["noise"]), atlas.differences(found, ["noise"]))


def test_what_orders_the_errors_predicts_them_and_what_follows_the_classes_is_found(found):
    made = atlas.relations(found, ["ordered", "noise", "sizes"])["difference"].round(6)
    assert made["ordered", "error"] == 1 and abs(made["noise", "error"]) < 0.7
    assert made["sizes", "G"] == -1 and made["sizes", "learnt"] == made["sizes", "meaning"] == 0
    errors = found[found["key"] == "error"]  # of a second transfer, in two of the repetitions
    other = errors[errors["repetition"] < "results/2"].assign(key="error (b)", value=-errors["value"])
    several = pd.concat([found.replace({"key": {"error": "error (a)"}}), other])
    told = atlas.relations(several, ["ordered"])["difference"].round(6)["ordered"]
    assert (told["error (a)"], told["error (b)"]) == (1, -1)


def test_few_arms_have_no_relations(found):
    few = found[found["arm"].isin(ARMS[:4])]
    assert atlas.relations(few, ["ordered"]).empty and len(atlas.differences(few, ["ordered"])) == 4


def test_a_figure_is_as_wide_as_its_label_spaces_need():
    widths = []
    for arms in (6, 140):
        index = pd.MultiIndex.from_product([["noise"], map(str, range(arms))], names=["key", "arm"])
        drawn = atlas.picture(pd.DataFrame({"difference": 1.0, "low": -1.0, "high": 3.0}, index=index))
        widths.append(float(re.search(r'width="([\d.]+)pt"', drawn)[1]) / 72)
    assert widths[0] == pytest.approx(atlas.drawing.WIDTH) and widths[1] > 140 * 0.13  # inches of a line of text


@pytest.fixture
def results(tmp_path, make_samples) -> Path:
    """Two backbones of two arms, two transfers. After `same`, the first tenth of the images is hard, after `head` the
    last.
    """
    at, kinds = tmp_path / "results" / "a" / "draw-0" / "train-40", ["even", "odd"] * 30
    samples = make_samples(at / "samples", ["train"] * 40 + ["val"] * 20, {"kind": kinds, "class": kinds}, "kind")
    options = {"space": "manual-class", "family": "manual", "params": {"rank": "class"}}
    tasks.run("hierarchy", at / "hierarchy" / "manual-class", options, samples=samples)
    names = [f"{arm}-p{seed}" for arm in ("target", "manual-class") for seed in (0, 1)]
    about = {"space": np.repeat(["target", "manual-class"], 2), "network": "net", "granularity": 2}
    runs = pd.DataFrame({"run_id": names, **about, "pretrain_seed": [0, 1, 0, 1]})
    params = {"objective": {"name": "labels"}, "recipe": {"loss": "auto"}} | {"transfer": None}
    with writing.create(at / "pretrain/net/all", "pretrain", params=params) as out:
        out.table("runs.parquet", runs.assign(train_loss=0.1))
    with writing.create(at / "measure/probe/net/all", "measure") as out:
        out.table("runs.parquet", runs.rename(columns={"run_id": "run"}))
        values = {"run": names, "epoch": 1, "split": "val", "measure": "probe", "key": "kind", "value": 0.5}
        out.table("values.parquet", pd.DataFrame(values))
    for transfer, hard in {"same": slice(2), "head": slice(18, 20)}.items():
        with writing.create(at / "finetune" / transfer / "net/all", "finetune", params={"transfer": transfer}) as out:
            out.table("runs.parquet", runs.assign(transfer=transfer, val_error=10.0))
            codes = np.arange(20) % 2
            codes[hard] = 1 - codes[hard]
            ids = [f"image {row}" for row in range(40, 60)]
            out.table("predictions.parquet", pd.DataFrame({"sample_id": ids, **dict.fromkeys(names, codes)}))
            out.table("classes.parquet", pd.DataFrame({"label": [0, 1], "name": ["even", "odd"]}))
    return at.parent


def test_errors_of_several_transfers_stay_apart(results):
    means = atlas.read([results]).groupby("key")["value"].mean()
    for transfer in ("same", "head"):
        assert means[f"error ({transfer})"] == 10 and means[f"error/other images ({transfer})"] == 0
        assert means[f"error/hardest tenth ({transfer})"] == 100
    shutil.rmtree(results / "train-40/finetune/head")
    assert {"error", "error/hardest tenth"} < {*atlas.read([results])["key"]}
    shutil.rmtree(results / "train-40/finetune")
    assert "probe/kind" in {*atlas.read([results])["key"]}


def test_a_page_is_written_where_it_hides_nothing(results, capsys):
    again, other = results.with_name("draw-1"), results.parents[1] / "b" / "draw-0"
    shutil.copytree(results, again, symlinks=True)
    shutil.copytree(results, other, symlinks=True)

    def told(*words) -> str:
        cli.app(["atlas", *map(str, words)], standalone_mode=False)
        return capsys.readouterr().out.strip()

    assert told(results) == told(results) == f"{results}/atlas/index.html"
    assert told(results, again) == f"{results.parent}/atlas/index.html"
    assert "by intervals over 2 units" in (results / "atlas/index.html").read_text()
    mine = results.parent / "atlas"
    (mine / MARKER.format("atlas")).unlink()
    for words, why in {
        (results, other): "lie in several folders; name one for the page with --to",
        (results, other, "--to", results.parent / "page"): "have the same name",
        (results, "--to", mine): "contains files that `granularity atlas` did not make",
        (results.parent, "--to", results.parent / "page"): "is not the folder of one configuration",
        (results, "--split", "tset"): "was not measured in .*; there are val$",
    }.items():
        with pytest.raises(GranularityError, match=why):
            told(*words)
    assert not (results.parent / "page").exists()
