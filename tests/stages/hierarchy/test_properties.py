"""Measured properties of label spaces, against brute force and scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

from granularity.stages.hierarchy.labels import Labels
from granularity.stages.hierarchy.properties import class_table, properties


def measured(labels: np.ndarray, names: list[str], ranks: pd.DataFrame, offsets=None) -> tuple[pd.DataFrame, dict]:
    coded = {rank: np.unique(ranks[rank].to_numpy(dtype=str), return_inverse=True)[::-1] for rank in ranks}
    space = Labels(labels, names, offsets)
    table = class_table(space, coded["kind"])
    return table, properties(space, table, coded)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [1, 3, 30, 200])
def test_properties_are_what_brute_force_finds(seed, classes):
    rng = np.random.default_rng(seed)
    ranks = pd.DataFrame({"kind": rng.choice(list("abc"), 120), "fine": rng.choice(list("uvwxyz"), 120)})
    labels = rng.integers(classes, size=120)
    table, found = measured(labels, [str(i) for i in range(classes)], ranks)

    members = {label: np.flatnonzero(labels == label) for label in set(labels)}
    straddling = sum(len(rows) for rows in members.values() if ranks["kind"][rows].nunique() > 1)
    assert found["straddling_share"] == pytest.approx(straddling / 120)
    assert found["refines_target"] == (straddling == 0)
    assert found["empty_classes"] == classes - len(members)
    sizes = [len(members.get(label, ())) for label in range(classes)]
    assert found["class_size"] == {"min": min(sizes), "median": np.median(sizes), "max": max(sizes)}
    assert found["starved_share"] == pytest.approx(np.mean([size < 5 for size in sizes]))
    for rank in ranks:
        majority = sum(ranks[rank][rows].value_counts().max() for rows in members.values())
        assert found["purity"][rank] == pytest.approx(majority / 120)
        nats = mutual_info_score(ranks[rank], labels)
        assert found["mutual_information_bits"][rank] == pytest.approx(nats / np.log(2), abs=1e-9)
        assert found["nmi"][rank] == pytest.approx(normalized_mutual_info_score(ranks[rank], labels), abs=1e-9)
    for label, rows in members.items():
        counts = ranks["kind"][rows].value_counts()
        tied = sorted(counts[counts == counts.max()].index)
        assert table["parent"][label] == tied[0]  # ties go to the first in alphabetical order
        assert table["purity"][label] == pytest.approx(counts.max() / len(rows))


@pytest.mark.parametrize("seed", range(3))
def test_properties_of_several_labels_are_what_brute_force_finds(seed):
    rng = np.random.default_rng(seed)
    ranks = pd.DataFrame({"kind": rng.choice(list("abc"), 60), "fine": rng.choice(list("uvwxyz"), 60)})
    sets = [sorted(rng.choice(9, size=rng.integers(1, 4), replace=False)) for _ in range(60)]
    offsets = np.cumsum([0, *map(len, sets)])
    table, found = measured(np.concatenate(sets).astype(np.int32), list("123456789"), ranks, offsets)
    pairs = [(label, image) for image, one in enumerate(sets) for label in one]
    kinds = {label: {ranks["kind"][image] for mine, image in pairs if mine == label} for label in range(9)}
    assert found["straddling_share"] == pytest.approx(np.mean([any(len(kinds[x]) > 1 for x in one) for one in sets]))
    assert found["labels_per_image"] == pytest.approx(len(pairs) / 60)
    assert found["multi_label"] is True
    assert table["size"].tolist() == [sum(label == mine for mine, _ in pairs) for label in range(9)]
    fine = [ranks["fine"][image] for _, image in pairs]
    nmi = normalized_mutual_info_score(fine, [label for label, _ in pairs])
    assert found["nmi"]["fine"] == pytest.approx(nmi)
