"""Features of the training images, as in Fig. 1 and 6 of Yang, Steinhardt and Hu (2023): a t-SNE of each coarse class,
which does not see the fine classes (colours). Purity: the percentage of images in the most frequent class of their
cluster.
"""

from granularity.stages.report import drawing
from granularity.stages.report.snapshots import COLOURS, Snapshot, evenly, grid, moves, square


@drawing.styled()
def draw(trainings: list[list[Snapshot]], name: str) -> str:
    first, last = trainings[0][0], len(COLOURS) - 1  # the colour of all further classes
    coarse, fine = first.ranks[0], first.ranks[-1]
    table = first.condition.samples.table("samples.parquet", ["split", coarse, fine]).astype("str")
    table = table[table["split"] == "train"].reset_index(drop=True)  # in the order of the plane's rows
    parts = [(title, part) for title, part in table.groupby(coarse) if part[fine].nunique() > 1]
    columns = [parts[i] for i in evenly(len(parts))]
    above = 0.14 * (1 + min(len(COLOURS), max(part[fine].nunique() for _, part in columns)))
    messages = [f"purity in % {moves(part, 'train/purity', '.0f')}" for part in trainings]
    labels = [[f"{one.state}\n{one.values['train/purity']:.0f} % pure" for one in part] for part in trainings]
    figure, blocks = grid(trainings, messages, labels, len(columns), square(len(columns), 1.2), above, 0.08)
    for axes, snapshots in zip(blocks, trainings, strict=True):
        for row, one in zip(axes, snapshots, strict=True):
            plane = one.array("train/plane")
            for axis, (_, part) in zip(row, columns, strict=True):
                for i, (kind, images) in enumerate(part.groupby(fine)):
                    words = drawing.shorten(kind, 12) if i < last else "others" if i == last else "_"
                    style = {"color": COLOURS[min(i, last)], "markersize": 1.6, "rasterized": True, "label": words}
                    axis.plot(*plane[images.index].T, "o", markeredgewidth=0, **style)
        for axis, (title, _) in zip(axes[0], columns, strict=True):
            place = {"loc": "lower left", "bbox_to_anchor": (-0.05, 1), "borderpad": 0, "handletextpad": 0}
            small = {"fontsize": 6.5, "title_fontsize": 6.5, "markerscale": 3, "alignment": "left"}
            key = axis.legend(title=drawing.shorten(title, 70 // len(columns)), **place, **small)
            for text in (key.get_title(), *key.get_texts()):
                text.set_parse_math(False)
    return drawing.svg(figure, name, "Features within coarse classes in the plane, over training")
