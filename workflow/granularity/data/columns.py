"""Columns of a sample table that are not labels."""

PLACE = ("file", "row", "offset", "bytes")  # where the bytes of an image lie
RESERVED = ("sample_id", "split", "distribution", *PLACE, "sha256")
