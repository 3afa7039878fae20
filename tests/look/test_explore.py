"""The pages to look through results, in a browser: what is selected, counted, downloaded, and what names cannot do."""

import base64
import functools
import http.server
import io
import json
import re
import shutil
import threading
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.metrics import normalized_mutual_info_score

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.look import inspection
from granularity.look.explore import page as pages
from granularity.look.folder import MARKER
from granularity.store import artifact, place
from granularity.store.artifact import Artifact
from support import browser, tasks, writing

CLASSES = ['<img src=x onerror="alert(1)">', "$$x^2$$", "</script><script>alert(2)</script>", 'plain, "quoted"']
KINDS = ["=1+1", "\\(y\\)"]
TRAIN, ALL, SIDE = 40, 60, 12
ARMS = ["target", "manual-class"]
VIEWS = [f"train-{TRAIN}/{view}.html" for view in pages.VIEWS]


def explore(root: Path, *words: str) -> None:
    cli.app(["explore", str(root), *words], standalone_mode=False)


@pytest.fixture(scope="module")
def chromium():
    with browser.running() as one:
        yield one


@pytest.fixture(scope="module")
def made(tmp_path_factory, make_samples, make_array):
    """Results whose classes have hostile names, with the pages about them: images, a tree of clusters, predictions."""
    root, rng = tmp_path_factory.mktemp("explore") / "results" / "odd", np.random.default_rng(1)
    folder, code = root / f"train-{TRAIN}", rng.permutation(np.arange(ALL) % 4)
    ranks = {"kind": [KINDS[one // 2] for one in code], "class": [CLASSES[one] for one in code]}
    images = rng.integers(0, 256, (ALL, SIDE, SIDE, 3)).astype(np.uint8)
    images[ALL - 1] = images[0]
    photos, files = root.parent / "photos #1", [f"{row} #?%41<b>.png" for row in range(ALL)]
    photos.mkdir(parents=True)
    for name, image in zip(files, images, strict=True):
        Image.fromarray(image).save(photos / name)
    packed = pd.array([None] * (ALL - 1) + [0], "Int64")  # the last is a row of a larger file
    where = {"root": str(photos), "columns": {"file": files, "row": packed, "offset": pd.NA}}
    samples = make_samples(folder / "samples", ["train"] * TRAIN + ["val"] * (ALL - TRAIN), ranks, "kind", **where)
    make_array(folder / "pixels", "pixels", samples, images)
    tasks.run("duplicates", folder / "duplicates", {"by": "pixels"}, samples=samples, pixels=folder / "pixels")
    near = np.eye(8, dtype=np.float32)[code] + 0.4 * rng.standard_normal((ALL, 8)).astype(np.float32)
    make_array(folder / "embed", "embed", samples, near / np.linalg.norm(near, axis=1, keepdims=True))
    given = {"samples": samples, "embed": folder / "embed"}
    tasks.run("cluster", folder / "cluster" / "whole-2-2", {"clustering": "whole-2-2"}, **given)
    options = {"space": "manual-class", "family": "manual", "params": {"rank": "class"}}
    tasks.run("hierarchy", folder / "hierarchy" / "manual-class", options, samples=samples)
    params = {"transfer": "target"} | writing.unlike_any()
    with writing.create(folder / "finetune/target/net/all", "finetune", params=params) as out:
        names = [f"{arm}-f{seed}" for arm in ARMS for seed in range(3)]
        about = {"space": np.repeat(ARMS, 3), "network": "net", "transfer": "target", "granularity": 4}
        out.table("runs.parquet", pd.DataFrame({"run_id": names, **about, "val_error": 50.0}))
        ids = [f"image {row}" for row in range(TRAIN, ALL)]
        said = {name: rng.integers(0, 2, len(ids)).astype(np.int32) for name in names}
        out.table("predictions.parquet", pd.DataFrame({"sample_id": ids, **said}))
        out.table("classes.parquet", pd.DataFrame({"label": [0, 1], "name": sorted(KINDS)}))
        losses = [(name, epoch, 1 / epoch) for name in names for epoch in (1, 2)]
        out.table("history.parquet", pd.DataFrame(losses, columns=["run_id", "epoch", "train_loss"]))
    with writing.create(root / "report", "report", **writing.unlike_any()) as out:
        words = f"<b>Yes</b>\n{escape(CLASSES[2])} &lt;i&gt; helps"
        out.text("report.html", f'<h1>Does it help?</h1><p class="headline">{words}.\n</p><p>More</p>')
    explore(root)
    return (
        root / "explore",
        pd.DataFrame({"sample_id": [f"image {row}" for row in range(ALL)], **ranks}),
        images,
        folder,
    )


def go(page, url: str) -> None:
    page.goto(url)
    page.evaluate("explore.ready")


def shown(page, where: str = "#tiles") -> list[int]:
    """The images of the tiles there, once all are drawn."""
    page.wait_for_function(f"[...document.querySelectorAll('{where} canvas')].every(one => one.dataset.row)")
    return page.eval_on_selector_all(f"{where} canvas", "all => all.map(one => Number(one.dataset.row))")


def table(page, where: str) -> pd.DataFrame:
    cells = "row => [...row.children].map(cell => cell.textContent)"
    head, *rows = page.eval_on_selector_all(f"{where} tr", f"rows => rows.map({cells})")
    return pd.DataFrame(rows, columns=head).set_index(head[0])


def saved(page, button: str) -> pd.DataFrame:
    with page.expect_download() as download:
        page.click(button)
    return pd.read_csv(download.value.path(), dtype=str, keep_default_na=False)


@pytest.mark.browser
def test_a_lasso_gives_images_counts_and_files(chromium, made):
    """Over file://: drawn with the mouse, counted as pandas counts, and what is downloaded reads back."""
    folder, samples, _, results = made
    with browser.driven(chromium) as page:
        go(page, (folder / VIEWS[0]).as_uri())
        page.select_option("#colour", label="class")
        points = page.evaluate("""() => {
          const view = Bokeh.index.roots[0], {frame} = view, {left, top} = view.el.getBoundingClientRect();
          const {x, y} = Bokeh.documents[0].get_model_by_name("shown").data;
          const place = (axis, from, values) => [...values].map(value => from + frame[axis].compute(value));
          return [place("x_scale", left, x), place("y_scale", top, y)];
        }""")
        x, y = map(np.array, points)
        left, middle, top, bottom = x.min() - 5, np.sort(x)[ALL // 3 : ALL // 3 + 2].mean(), y.min() - 5, y.max() + 5
        corners = [(left, top), (middle, top), (middle, bottom), (left, bottom), (left, top)]
        page.mouse.move(*corners[0])
        page.mouse.down()
        for corner in corners[1:]:
            page.mouse.move(*corner, steps=8)
        page.mouse.up()
        page.wait_for_function("document.getElementById('number').textContent !== '0'")
        inside = samples[(x > left) & (x < middle)]
        assert shown(page) == inside.index.tolist() and len(inside) == ALL // 3 + 1
        counts, every = inside["class"].value_counts(), samples["class"].value_counts()
        found = table(page, "#counts").astype(int)
        assert (
            found["selected"].to_dict() == counts.to_dict() and found["of"].to_dict() == every[counts.index].to_dict()
        )
        assert saved(page, "#save").equals(inside[["sample_id", "class"]].reset_index(drop=True))

        page.fill("#relabel input", CLASSES[2])
        page.keyboard.press("Enter")
        left_out = (inside.index >= TRAIN).sum()
        said = f"{len(inside) - left_out} images are now “{CLASSES[2]}”. {left_out} outside the training split"
        assert left_out and page.text_content("#relabel output").startswith(said)
        page.reload()  # the browser keeps them
        page.evaluate("explore.ready")
        page.select_option("#colour", label="new labels")
        page.click(f"#legend button:has-text('{CLASSES[2]}')")
        assert shown(page) == inside.index[inside.index < TRAIN].tolist()
        page.select_option("#colour", label="class")
        page.click("#clear")
        assert shown(page) == [] and page.text_content("#number") == "0"
        page.click(f"#legend button:has-text('{CLASSES[1]}')")  # all of a class
        second = samples[samples["class"] == CLASSES[1]]
        assert shown(page) == second.index.tolist()
        page.fill("#relabel input", "other")
        page.click("#relabel button")
        page.evaluate("scrollTo(0, 0)")
        page.mouse.move(x[0], y[0])
        page.wait_for_selector("#tip:not([hidden])")
        assert any(f"class: {name}" in page.text_content("#tip") for name in CLASSES)

        go(page, (folder / VIEWS[1]).as_uri())  # a cluster is named as a whole, beside what the map has named
        page.fill("#cluster-0 input", "=cluster")
        page.click("#cluster-0 form button")
        labels = saved(page, "#labels")
        assert list(labels) == ["sample_id", "label"]
        tree = Artifact.open(results / "cluster" / "whole-2-2")
        level = tree.table("clusters.parquet")["level_1"][tree.table("assignment.parquet")["cluster"]].to_numpy()
        wanted = dict.fromkeys(inside["sample_id"], CLASSES[2]) | dict.fromkeys(second["sample_id"], "other")
        wanted |= dict.fromkeys(samples["sample_id"][:TRAIN][level == 0], "=cluster")
        wanted = {name: wanted[name] for name in samples["sample_id"][:TRAIN] if name in wanted}
        assert dict(zip(labels["sample_id"], labels["label"], strict=True)) == wanted


@pytest.mark.browser
@pytest.mark.parametrize(
    ("kept", "images"),
    [
        (json.dumps([["image 0", CLASSES[0]], ["image 1", 7], [{}, "x"], [f"image {TRAIN}", "a"]]), 1),
        ("[null]", 0),
        ('{"image 0": "a"}', 0),
        ("<img src=x onerror=alert(1)>", 0),
    ],
)
def test_what_a_browser_kept_is_text_of_training_images_or_nothing(chromium, made, kept, images):
    with browser.driven(chromium) as page:
        go(page, (made[0] / VIEWS[0]).as_uri())
        page.evaluate("kept => localStorage.setItem(key, kept)", kept)
        page.reload()
        page.evaluate("explore.ready")
        assert page.text_content("#relabelled").startswith(f"Images with a new label: {images}.")
        page.select_option("#colour", label="new labels")
        assert page.locator("#legend button").all_text_contents() == [f"{CLASSES[0]} (1)"] * images


@pytest.mark.browser
def test_a_tile_opens_the_original(chromium, made):
    folder, _, images, _ = made
    with browser.driven(chromium) as page:
        go(page, (folder / VIEWS[0]).as_uri())
        page.evaluate("explore.select([3, 59])")
        assert shown(page) == [3, 59] and page.locator("#tiles a").count() == 1
        with page.expect_popup() as opened:
            page.click("#tiles a")
        opened.value.wait_for_load_state()
        path = unquote(urlsplit(opened.value.url).path)
        assert (np.asarray(Image.open(path)) == images[3]).all()
        assert opened.value.evaluate("document.images[0].naturalWidth") == SIDE


@pytest.mark.browser
def test_the_first_page_begins_with_the_answer(chromium, made):
    with browser.driven(chromium) as page:
        go(page, (made[0] / pages.INDEX).as_uri())
        assert page.text_content(".headline").startswith(f"Yes {CLASSES[2]} <i> helps.")
        assert "sound" not in " ".join(page.locator("summary, .verdict").all_text_contents())
        page.click(".headline a")
        assert page.text_content("h1") == "Does it help?"


@pytest.mark.browser
def test_tiles_have_the_pixels_that_are_stored(chromium, made):
    """Over http, where a page may read its canvases."""
    folder, _, images, _ = made
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.func.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with browser.driven(chromium) as page:
            go(page, f"http://127.0.0.1:{server.server_port}/{VIEWS[0]}")
            page.evaluate("explore.select([...Array(60).keys()])")
            rows = shown(page)
            assert page.locator("#tiles a").count() == 0  # such a page may not open files
            read = "one => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]"
            found = page.eval_on_selector_all("#tiles canvas", f"all => all.map({read})")
        server.shutdown()
    assert rows == list(range(ALL))
    found = np.array(found, np.uint8).reshape(ALL, SIDE, SIDE, 4)
    assert (found[..., :3] == images).all() and (found[..., 3] == 255).all()


def test_the_map_is_a_table_for_other_viewers(made):
    folder, samples, _, results = made
    found = pd.read_parquet(folder / results.name / "map.parquet")
    assert found[samples.columns.to_list()].equals(samples.astype(found.dtypes[samples.columns]))
    assert np.isfinite(found[["PCA x", "PCA y"]]).all(axis=None)
    assert found["manual-class"].notna().any() and "target" not in found  # which has no labels here, but predictions
    assert found["prediction: target"].notna().any()


def test_near_duplicates_are_shown_as_they_are(made):
    folder, samples, images, results = made
    page, table = (folder / VIEWS[4]).read_text(), pd.read_parquet(results / "duplicates/findings.parquet")
    shown = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in re.findall('png;base64,([^"]+)"', page)
    ]
    row = dict(zip(samples["sample_id"], range(ALL), strict=True))
    (across,) = table.query("finding == 'near_in_both_splits' and bits == 0").to_dict("records")
    assert (across["sample_id"], across["twin_sample_id"]) == (f"image {ALL - 1}", "image 0")
    pairs = table.sort_values(["finding", "bits"], kind="stable")[["sample_id", "twin_sample_id"]].to_numpy().ravel()
    assert len(shown) == len(pairs) and all(
        (images[row[one]] == tile).all() for one, tile in zip(pairs, shown, strict=True)
    )
    assert escape(samples["class"][0], quote=False).replace('"', "&#34;") in page and "<img src=x" not in page


@pytest.mark.browser
def test_clusters_and_comparisons_are_those_of_pandas(chromium, made):
    folder, samples, _, results = made
    tree = Artifact.open(results / "cluster" / "whole-2-2")
    cluster = tree.table("assignment.parquet")["cluster"]
    vectors = Artifact.open(results / "embed").array("embedding.npy")[:TRAIN]
    with browser.driven(chromium) as page:
        go(page, (folder / VIEWS[1]).as_uri())
        page.click("#clusters button:has-text('cluster 1')")  # a child of cluster 0
        assert page.eval_on_selector("#tree", "one => one.selectedOptions[0].text") == "whole-2-2, level 2"
        mixed = 0
        for number, own in samples[:TRAIN].groupby(cluster):
            shares = own["class"].value_counts(normalize=True)
            mixed += len(shares) > 1 and shares.iloc[1] >= 0.2
            text = page.text_content(f"#cluster-{number}")
            assert f"{len(own)} images, {np.floor(100 * shares.iloc[0] + 0.5):.0f} % " in text
            distance = ((vectors[own.index] - vectors[own.index].mean(0)) ** 2).sum(1)
            order = own.index[np.argsort(distance)].tolist()
            assert shown(page, f"#cluster-{number} .sets > :nth-child(1)") == order[:8]
            assert shown(page, f"#cluster-{number} .sets > :nth-child(2)") == order[::-1][:8]
            parent = tree.table("clusters.parquet")["level_1"][number]
            assert f"Within cluster {parent}" in text
        assert f"{cluster.nunique()} clusters, {mixed} mixed" in page.text_content("#number")
        page.check("#mixed")
        assert page.locator(".cluster").count() == mixed

        go(page, (folder / VIEWS[2]).as_uri())
        chosen = "one => one.selectedOptions[0].text"
        opened = {one: page.eval_on_selector(f"#{one}", chosen) for one in ("one", "other", "arm", "against")}
        assert list(opened.values()) == ["whole-2-2, level 1", "class", ARMS[1], ARMS[0]]
        page.select_option("#one", label="whole-2-2, level 2")
        page.select_option("#other", label="class")
        wanted = pd.crosstab("cluster " + cluster.astype(str), samples["class"][:TRAIN])
        found = table(page, "#table").replace("", "0").astype(int)
        assert found.loc[wanted.index, wanted.columns].to_numpy().tolist() == wanted.to_numpy().tolist()
        score = normalized_mutual_info_score(cluster, samples["class"][:TRAIN])
        assert f"NMI {score:.3f} over {TRAIN} images" in page.text_content("#nmi")
        said = Artifact.open(results / "finetune/target/net/all").table("predictions.parquet")
        truth = samples["kind"][TRAIN:].map(sorted(KINDS).index).to_numpy()
        right = [(said.filter(like=arm).sum(axis=1) >= 2).to_numpy() == truth for arm in ARMS]
        page.select_option("#arm", label=ARMS[1])
        page.select_option("#against", label=ARMS[0])
        for place_, (first, second) in {2: (True, False), 3: (False, True)}.items():
            flipped = TRAIN + np.flatnonzero((right[1] == first) & (right[0] == second))
            assert shown(page, f"#flips > div:nth-of-type({place_})") == flipped.tolist()
            assert page.text_content(f"#flips h3:nth-of-type({place_})").startswith(f"{len(flipped)} ")


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_every_page_fits_and_is_reached_by_keyboard(chromium, made, width):
    with browser.driven(chromium, width) as page:
        go(page, (made[0] / pages.INDEX).as_uri())
        for view in ["", *VIEWS]:
            if view:
                page.locator(f"nav a[href$='{Path(view).name}']").focus()
                page.keyboard.press("Enter")
                page.wait_for_url(f"**/{view}")
                page.evaluate("explore.ready")
                page.keyboard.press("Tab")
                for _ in range(12):  # past the links
                    if page.evaluate("document.activeElement.tagName") == "SELECT":
                        break
                    page.keyboard.press("Tab")
                reached = page.evaluate("document.activeElement.tagName")
                assert reached == "SELECT" or view == VIEWS[4]  # which has nothing to choose
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            page.evaluate("explore.select?.([0, 1, 2])")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view


@pytest.mark.browser
def test_dots_and_lines_are_those_of_the_runs(chromium, made):
    runs = Artifact.open(made[3] / "finetune/target/net/all").table("runs.parquet").set_index("run_id")
    with browser.driven(chromium) as page:
        go(page, (made[0] / VIEWS[3]).as_uri())
        found = page.evaluate("Bokeh.documents.map(one => one.get_model_by_name('shown').data.run)")
        assert sorted(found[0]) == sorted(found[1]) == sorted(runs.index)
        shades = page.evaluate("Bokeh.documents[0].get_model_by_name('shown').data.colour")
        assert len({(runs.loc[run, "space"], shade) for run, shade in zip(found[0], shades, strict=True)}) == 2
        assert len(set(shades)) == 2
        page.select_option("#space", label=ARMS[1])
        alpha = page.evaluate("Bokeh.documents[0].get_model_by_name('shown').data.alpha")
        assert (runs.loc[found[0], "space"] == ARMS[1]).tolist() == [one > 0.5 for one in alpha]


def test_pages_of_a_sample_say_so(made, tmp_path):
    explore(made[3].parent, "--images", "30", "--to", str(tmp_path))
    told = {view for view in VIEWS if f"Only 30 of the {ALL} images" in (tmp_path / view).read_text()}
    assert told == {*VIEWS[:3]} and "Only " not in (made[0] / VIEWS[0]).read_text()


def test_what_is_not_sound_is_named_and_not_used(made, tmp_path, capsys):
    shutil.copytree(made[3].parents[1], tmp_path / "results", symlinks=True)
    root = tmp_path / "results" / "odd"
    folder = root / made[3].name
    file = (folder / "embed").resolve() / "embedding.npy"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    shutil.rmtree((folder / "finetune/target/net/all").resolve())
    manifest = (folder / "hierarchy/manual-class").resolve() / place.MANIFEST
    manifest.chmod(0o644)
    said = artifact.parse(manifest.read_bytes(), manifest)
    manifest.write_text(artifact.as_text(said | {"schema_version": 0}))  # as another version would have sealed it
    explore(root)
    *lines, last = capsys.readouterr().out.splitlines()
    states = ["corrupt", "of another version", "missing"]
    assert [line.partition(":")[0] for line in lines] == states and last == f"{root}/explore/index.html"
    assert "embed/embedding.npy: corrupt" in lines[0]
    index, shown_map = ((root / "explore" / name).read_text() for name in ("index.html", VIEWS[0]))
    assert all(f"1 {state}</span>" in index for state in states)
    assert "components of the pixels" in shown_map and "embed</strong> is not used: corrupt" in shown_map
    assert "label space" not in (root / "explore" / folder.name / "data.js").read_text()


def test_the_folder_holds_nothing_of_others(made, tmp_path):
    """Pages are made again beside what a person has put there; another's folder is not touched; the store sees none."""
    root, to = made[3].parent, tmp_path / "results" / "pages"
    explore(root, "--to", str(to))
    (to / "labels.csv").write_text("mine")
    marker = to / MARKER.format("explore")
    marker.write_text(marker.read_text().replace("[", '["old.html", "../../kept.txt", ', 1))
    (to / "old.html").touch()
    (tmp_path / "kept.txt").touch()
    files = {*to.rglob("*")}
    explore(root, "--to", str(to))
    assert {*to.rglob("*")} == files - {to / "old.html"} and (tmp_path / "kept.txt").exists()
    assert (to / "labels.csv").read_text() == "mine"
    marker.unlink()
    with pytest.raises(GranularityError, match="contains files that `granularity explore` did not make"):
        explore(root, "--to", str(to))
    with pytest.raises(GranularityError, match="contains no results"):
        explore(to)
    with pytest.raises(GranularityError, match="is not the folder of one configuration"):
        explore(root.parent)
    assert made[0].is_dir()  # below results, where none of these sees it
    assert inspection.verify(root.parent)["problems"] == place.needless(root.parent, 0) == []
    assert len(place.find(root)) == 8
