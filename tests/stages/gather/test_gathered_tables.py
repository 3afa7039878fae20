"""Comparisons over the draws of a study, and the answer that rests on them."""

import pandas as pd

from granularity.stages.gather import tables
from granularity.stages.gather.stage import named

LABEL = {"label": "300 training images", "network": "small"}


def compared(question: str, space: str | None, other: str, difference: float) -> dict:
    one = {**LABEL, "question": question, "transfer": "target", "space": space, "other": other, "holds": None}
    return one | {"repeats": None, "difference": difference, "error": 0.1, "pairs": 4}


def test_coarser_labels_give_no_answer_and_means_over_pairs_stay_together():
    cells = {f"draw-{draw}": {"draw": draw} for draw in range(3)}
    reports = {
        cell: pd.DataFrame(
            [
                compared("finer", "fine", "target", 0.3 + draw / 100),
                compared("finer", "coarse", "target", -1 - draw / 100),
                compared("meaning", None, "3" if draw else "2", -0.5 - draw / 100),
            ]
        )
        for draw, cell in enumerate(cells)
    }
    sizes = {"target": ("baseline", 3), "fine": ("arm", 10), "coarse": ("arm", 2)}
    arms = [
        {**LABEL, "space": space, "role": role, "granularity": size, "meaningless": False, "mean": 2.0}
        for space, (role, size) in sizes.items()
    ]
    table = tables.over_draws(reports, cells, "draw")
    assert table["draws"].tolist() == [3, 3, 3]
    (found,) = tables.answers(table, table["space"], dict.fromkeys(cells, pd.DataFrame(arms)), cells)
    assert (found["space"], found["spaces"], found["better"]) == ("fine", 1, 0)
    assert found["answer"] != "yes"


def test_what_is_finer_is_said_of_each_cell_and_a_yes_shows_what_is_significant():
    """Five labels are finer than two classes, not than ten; the lowest mean may not be significant."""
    cells = {f"{target}_draw-{draw}": {"target": target, "draw": draw} for target in (2, 10) for draw in range(5)}
    reports, arms = {}, {}
    for cell, values in cells.items():
        wide = -2.0 + 4 * (values["draw"] - 2)
        rows = [("5", wide), ("50", -1 - values["draw"] / 100)]
        reports[cell] = pd.DataFrame([compared("finer", space, "target", one) for space, one in rows])
        sizes = {"target": values["target"], "5": 5, "50": 50}
        arms[cell] = pd.DataFrame(
            {**LABEL, "space": space, "role": "arm", "granularity": size, "meaningless": False, "mean": 30.0}
            for space, size in sizes.items()
        )
        arms[cell].loc[0, "role"] = "baseline"
    table = tables.over_draws(reports, cells, "draw")
    two, ten = tables.answers(table, table["space"], arms, cells)
    for found, spaces in ((two, 2), (ten, 1)):
        assert (found["answer"], found["space"], found["spaces"], found["better"]) == ("yes", "50", spaces, 1)


def test_a_comparison_is_named_with_its_values_first_and_labels_last():
    row = {**compared("finer", "fine", "target", -1), "conditions.1.train_size": 300, "pretrain.lr": 0.1}
    axes = ["conditions.1.train_size", "pretrain.lr"]
    assert named(row, axes, {"small"}) == "fine − target, train_size 300, lr 0.1, 300 training images"
    meaning = compared("meaning", "meaning (wider)", "3", -1) | {"holds": "neither"}
    assert named(meaning, [], {"300 training images"}) == "meaning (wider) (neither)"


def test_where_nothing_is_finetuned_there_is_nothing_to_compare():
    cells = {"a_draw-0": {"cell": "a", "draw": 0}}
    table = tables.over_draws({}, cells, "draw")
    assert table.empty and {"cell", "question", "standing"} <= {*table}
    assert tables.answers(table, table["space"], {}, cells) == []
