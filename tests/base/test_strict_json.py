"""JSON that nobody vouches for."""

import json
import resource
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from granularity.base.errors import GranularityError
from granularity.base.strict_json import parse_json, read_json, read_safetensors_header

BAD = {
    "nothing": ("", "line 1"),
    "cut off": ('{"a": [1,', "line 1, column 10"),
    "a key twice": ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is there twice"),
    "NaN": ('{"a": NaN}', "NaN is no number"),
    "infinite": ('{"a": -Infinity}', "-Infinity is no number"),
    "too large a number": ('{"a": 1e999}', "1e999 is too large"),
    "too long a number": ("9" * 5000, "too large a number"),
    "deep": ("[" * 60 + "]" * 60, "more than 40 levels"),
    "deep objects": ('{"a":' * 60 + "1" + "}" * 60, "more than 40 levels"),
    "deeper than Python's stack": ("[" * 100_000, "more than 40 levels"),
    "a key twice among many": (json.dumps({str(i): 0 for i in range(300_000)})[:-1] + ', "299999": 1}', "'299999'"),
    "a million lists": ("[" + "[]," * 1_000_001 + "[]]", "more than 1,000,000 values"),
    "latin-1": ('"ü"'.encode("latin-1"), "byte 1 is no UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "byte 0 is no UTF-8"),
    "a byte order mark": ('\ufeff{"a": 1}', "line 1"),
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


def test_plain_data_are_read_as_they_are():
    values = {"a": [1, 2.5, -3, None, True, "ü 😀"], "b": {"c": []}, "d": 2**63}
    deep = json.loads("[" * 40 + "]" * 40)
    for one in (values, deep, 3, "text", None):
        assert parse_json(json.dumps(one), "x") == one


def test_a_file_that_is_too_large_costs_no_memory(tmp_path):
    with (tmp_path / "one.json").open("wb") as stream:
        stream.truncate(1 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GranularityError, match="larger than"):
        read_json(tmp_path / "one.json")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB


def test_objects_may_be_dropped_as_they_are_read():
    seen = []
    text = '{"a": [{"b": 1}, {"b": 2}]}'
    assert parse_json(text, "x", keep=lambda one: one if "a" in one else seen.append(one)) == {"a": [None, None]}
    assert seen == [{"b": 1}, {"b": 2}]


def test_headers_of_safetensors(tmp_path):
    file = tmp_path / "one.safetensors"
    save_file({"x": np.zeros((2, 3), np.float32)}, file, {"granularity": "{}"})
    header = read_safetensors_header(file)
    assert header["x"]["shape"] == [2, 3] and header["__metadata__"] == {"granularity": "{}"}
    good, two = file.read_bytes(), b'{"x":1,"x":2}'
    for bad in (b"", good[:20], b"\x80\x02}q\x00.", b"PK\x03\x04" + good, struct.pack("<Q", 1 << 62) + good):
        file.write_bytes(bad)
        with pytest.raises(GranularityError, match=r"one\.safetensors: is truncated or no safetensors file"):
            read_safetensors_header(file)
    file.write_bytes(struct.pack("<Q", len(two)) + two)
    with pytest.raises(GranularityError, match="'x' is there twice"):
        read_safetensors_header(file)
