"""Seeds: every purpose has its own, derived from the base seed."""

import hashlib
import json
from typing import Any


def seed_of(base: int, *names: Any) -> int:
    """Return a 63-bit seed derived from a base seed and a purpose, so that no two random streams coincide."""
    text = json.dumps([base, *names], separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
