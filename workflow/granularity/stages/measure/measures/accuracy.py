"""The accuracy of a network's own answers: the class of its head's largest output, compared with the target.

An output of a head that was pretrained on other labels answers with the target class that contains its own class. Keys:
`error` (top-1, percent), `macro_f1` (percent), `images` (how many count) and, as an array in the order of the target's
classes, `error_by_class`. On the split `train` this is the training accuracy, with images preprocessed as in
evaluation. After pretraining on several levels of labels (objective `levels`) outputs of all levels answer; in
`val_error` only those of one. Without a head, as for the embedding, there are no rows.
"""

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section


class Options(Section):
    classes: list[str] | None = Field(
        None, min_length=1, description="Only images of these target classes, with answers among them (null: all)."
    )
    by_class: bool = Field(False, description="Whether to add the error of each class.")


def measure(view, options: Options, seed: int):
    import numpy as np

    from granularity.learning.training.evaluation import error_by_class, macro_f1, percent_wrong

    if view.answers is None:
        return
    names, among, chosen = view.data.target_names, slice(None), None
    if options.classes is not None:
        if unknown := [name for name in options.classes if name not in names]:
            raise GranularityError(f"classes: '{unknown[0]}' is not a target class of the training split")
        chosen = np.flatnonzero(np.isin(names, options.classes))
        among = np.flatnonzero(np.isin(view.answers, chosen))
        if not len(among):
            raise GranularityError(f"classes: the network of {view.about['run']} has no output for any of them")
    for split in view.splits:
        rows = view.rows(split)
        # Classes rather than outputs, because half a million outputs per image would fill the memory.
        best = view.predict(split, lambda images: view.network(images)[:, among].argmax(1)).numpy()
        predicted, truth = view.answers[among][best], view.data.target[rows]
        counted = np.ones(len(rows), dtype=bool) if chosen is None else np.isin(truth, chosen)
        yield split, "error", percent_wrong(predicted[counted], truth[counted])
        yield split, "macro_f1", macro_f1(predicted[counted], truth[counted])
        yield split, "images", int(counted.sum())
        if options.by_class:
            yield split, "error_by_class", error_by_class(predicted[counted], truth[counted], len(names))
