"""What the images were embedded with, and what it leaks."""

from __future__ import annotations

from granularity.stages.report import figures
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "The encoder"
LINK = "Encoder"


def applies(loaded: Loaded) -> bool:
    return loaded.encoder is not None


def build(loaded: Loaded) -> Part:
    losses = loaded.encoder.losses
    clustered = any(condition.of("cluster") for condition in loaded.conditions)
    drawn = {"encoder_loss": figures.encoder_loss(losses)} if losses else {}
    return Part(figures=drawn, values={"encoder": loaded.encoder, "clustered": clustered})


TEMPLATE = """
<p>Images were embedded by <code>{{ encoder.model }}</code>.
{% if encoder.captions %}
It was trained here, contrastively, from random weights, on pairs of a training image and the caption
“{{ encoder.captions.template }}”, where {} is the image's “{{ encoder.rank }}”, for
{{ encoder.captions.epochs | count("epoch") }}.
{% endif %}
{{ encoder.leak if clustered }}</p>
{% if "encoder_loss" in figures %}
{{ drawing("encoder_loss", "Contrastive loss of the encoder. The validation loss is for reading only: nothing is chosen
by it.") }}
{% endif %}
"""
