"""JSON that nobody vouches for."""

import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from granularity.base.errors import GranularityError
from granularity.base.strict_json import parse_json, read_json, read_safetensors_header

BAD = {
    "nothing": ("", "line 1"),
    "cut off": ('{"a": [1,', "line 1, column 10"),
    "a key twice": ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' appears twice"),
    "NaN": ('{"a": NaN}', "NaN is not a finite number"),
    "too large a number": ('{"a": 1e999}', "1e999 is not a finite number"),
    "deeper than Python's stack": ("[" * 100_000, "nested too deep"),
    "latin-1": ('"ü"'.encode("latin-1"), "byte 1 is not UTF-8"),
}


@pytest.mark.parametrize("bad", BAD)
def test_one_line_names_the_file_and_the_place(bad, tmp_path):
    text, what = BAD[bad]
    file = tmp_path / "one.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for call in (lambda: parse_json(text, str(file)), lambda: read_json(file)):
        with pytest.raises(GranularityError, match=r"one\.json: is truncated or no JSON") as caught:
            call()
        assert what in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_headers_of_safetensors(tmp_path):
    file = tmp_path / "one.safetensors"
    save_file({"x": np.zeros((2, 3), np.float32)}, file, {"granularity": "{}"})
    header = read_safetensors_header(file)
    assert header["x"]["shape"] == [2, 3] and header["__metadata__"] == {"granularity": "{}"}
    good, two = file.read_bytes(), b'{"x":1,"x":2}'
    for bad in (b"", good[:20], b"\x80\x02}q\x00.", b"PK\x03\x04" + good, struct.pack("<Q", 1 << 62) + good):
        file.write_bytes(bad)
        with pytest.raises(GranularityError, match=r"one\.safetensors: is truncated or not a safetensors file"):
            read_safetensors_header(file)
    file.write_bytes(struct.pack("<Q", len(two)) + two)
    with pytest.raises(GranularityError, match="'x' appears twice"):
        read_safetensors_header(file)
