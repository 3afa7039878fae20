"""Which files the artifacts of each kind hold, beside their manifest."""

from __future__ import annotations

from fnmatch import fnmatchcase

# What every one of them holds; rules name these.
FILES = {
    "samples": ["samples.parquet", "taxonomy.parquet"],
    "pixels": ["pixels.npy"],
    "encoder": ["open_clip_config.json", "open_clip_model.safetensors", "history.parquet"],
    "embedding": ["embedding.npy"],
    "clusters": ["assignment.parquet", "centroids.npy", "clusters.parquet"],
    "label_space": ["labels.parquet", "classes.parquet", "properties.json"],
    "pretrain": ["runs.parquet", "history.parquet"],
    "finetune": ["runs.parquet", "history.parquet", "predictions.parquet"],
    "probe": ["runs.parquet"],
    "theory_runs": ["runs.parquet"],
    "theory": ["runs.parquet", "checks.csv", "settings.json"],
    "report": ["report.html"],
}
# What some of them hold.
MORE_FILES = {
    "samples": ["findings.parquet", "images.parquet", "wordnet.parquet"],
    "label_space": ["threshold_sweep.parquet"],
    "pretrain": ["backbones/*.safetensors"],
    "theory": ["figures/*.svg"],
    "report": ["figures/*.svg", "tables/*.csv", "tables/*.parquet"],
}


def is_foreign(kind: str, name: str) -> bool:
    """Whether no artifact of this kind holds a file of this name, relative to its folder."""
    known = FILES.get(kind)
    return known is not None and not any(
        fnmatchcase(name, pattern) for pattern in ("manifest.json", *known, *MORE_FILES.get(kind, ()))
    )
