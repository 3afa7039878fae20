"""Which table of the paper stands beside results: that of the same images, target and network."""

from types import SimpleNamespace

import pandas as pd
import pytest

from granularity.stages.report.sections import paper


def loaded(source, classes, network):
    samples = SimpleNamespace(facts={"source": source}, summary={"classes": {"kind": classes}})
    condition = SimpleNamespace(samples=samples, target="kind", images=lambda split: 1234)
    arm = {"family": "manual", "role": "arm", "label": "train-all", "difference": -0.4, "granularity": 273}
    return SimpleNamespace(conditions=[condition], architectures=[network], results=pd.DataFrame([arm]))


@pytest.mark.parametrize(
    ("source", "classes", "network", "table", "baseline", "families"),
    [
        ("inaturalist", 11, "resnet34", "Table 5", 5.25, 5),
        ("inaturalist", 11, "resnet50", "Table 7", 4.43, 2),
        ("inaturalist", 11, "resnet18", "Table 5", 5.25, 5),  # none of the paper's: its first on these images
        ("imagenet", 1000, "resnet50", "Table 9", 23.28, 2),
        ("imagenet21k", 2, "vit_base_patch16_224", "Table 2", 7.9, 1),
    ],
)
def test_the_table_that_fits_is_shown(source, classes, network, table, baseline, families):
    found = loaded(source, classes, network)
    assert paper.applies(found)
    values = paper.build(found).values
    assert values["table_name"] == table and values["baseline"]["mean"] == baseline
    assert len(values["rows"]) == families
    assert [row["difference"] for row in values["all"] if row["arm"] == "baseline"] == [0]
    beside = 1 if table == "Table 9" else 0  # whose baseline stands in the text
    assert len(values["all"]) == len(paper.published.rows("granularity", "T" + table.split()[1])) + beside


def test_the_ranges_are_differences_from_the_papers_own_baseline():
    (row,) = paper.build(loaded("imagenet21k", 2, "vit_base_patch16_224")).values["rows"]
    assert row["paper"] == "−1.34 (G = 21,843) to −0.35 (G = 38)"


@pytest.mark.parametrize(("source", "classes"), [("inaturalist", 13), ("imagenet", 2), ("digits", 11)])
def test_no_table_stands_beside_another_experiment(source, classes):
    assert not paper.applies(loaded(source, classes, "resnet34"))
