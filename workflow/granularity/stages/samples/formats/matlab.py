"""Arrays of numbers in MATLAB 5 files, such as SVHN's.

SciPy's loadmat is not for files that one does not trust: a data type that there is not ends the process (a segmentation
fault, seen with SciPy 1.17.1), and a compressed array is inflated without a limit. This reads less, and checks it.

Layout: The MathWorks, "MAT-File Format" (version 5): a header of 128 bytes, then elements, each a type and a length
(uint32) and that many bytes; compressed ones hold one matrix. In a matrix: flags, dimensions (int32), name, numbers.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular
from granularity.stages.samples.formats.arrays import MAX_BYTES

CHUNK = 1 << 20
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", INT32: "i4", UINT32: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = range(6, 16)  # of matrices: the numeric ones; not cells, structs, objects, text, sparse or function handles


class _Corrupt(ValueError):
    """A file that is no such file; says what is wrong with it."""


def load(file: Path) -> dict[str, np.ndarray]:
    """The numeric arrays in a file, by name. MATLAB stores numbers in any type that holds them.

    Raises:
        GranularityError: it cannot be read, is truncated, corrupt or no MATLAB 5 file, or holds something else.
    """
    try:
        with open_regular(file) as stream:
            return dict(_arrays(stream))
    except (_Corrupt, zlib.error, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise GranularityError(f"{file}: is truncated or no MATLAB 5 file ({reason}); get it again") from None
    except OSError as error:
        raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None


def _arrays(stream: BinaryIO) -> Iterator[tuple[str, np.ndarray]]:
    header = stream.read(128)
    if header[124:] != b"\x00\x01IM":  # version 1.0, little-endian
        raise _Corrupt("it begins otherwise")
    while tag := stream.read(8):
        if len(tag) < 8:
            raise _Corrupt("it ends within an element")
        kind, length = struct.unpack("<II", tag)
        if kind == COMPRESSED:
            yield _array(_inflate(stream, length))
        elif kind == MATRIX:
            content = stream.read(min(length, MAX_BYTES))
            if len(content) < length:
                raise _Corrupt("it ends within an array")
            yield _array(content)
        else:
            raise _Corrupt(f"it has an element of type {kind}")


def _inflate(stream: BinaryIO, length: int) -> bytearray:
    """The content of the matrix in a compressed element: no more of it than the tag of the matrix announces."""
    inflater, out, announced = zlib.decompressobj(), bytearray(), 8  # at first only that tag
    while len(out) < announced:
        chunk = stream.read(min(length, CHUNK))
        length -= len(chunk)
        if not (chunk or inflater.unconsumed_tail):
            raise _Corrupt("it ends within an array")
        out += inflater.decompress(inflater.unconsumed_tail + chunk, announced - len(out))
        if announced == len(out) == 8:
            kind, size = struct.unpack("<II", out)
            if kind != MATRIX or not 0 < size <= MAX_BYTES:
                raise _Corrupt("a compressed element holds no array, or an absurdly large one")
            announced += size
    rest = inflater.decompress(inflater.unconsumed_tail + stream.read(min(length, CHUNK)), 1)
    if rest or not inflater.eof:  # at the end of the data, zlib has compared the checksums
        raise _Corrupt("an array does not end where it should")
    del out[:8]
    return out


def _array(content: bytes | bytearray) -> tuple[str, np.ndarray]:
    """The name and the values of a matrix."""
    parts = list(_elements(memoryview(content)))
    if [kind for kind, _ in parts[:3]] != [UINT32, INT32, INT8] or len(parts[0][1]) != 8:
        raise _Corrupt("an array lacks its flags, dimensions or name")
    (_, flags), (_, dimensions), (_, name) = parts[:3]
    name = ascii(bytes(name[:63]).decode("latin-1"))[1:-1]
    (flags,) = struct.unpack_from("<I", flags)
    if flags & 0xFF not in CLASSES or len(parts) != 4 or parts[3][0] not in TYPES:  # a fifth part is imaginary
        raise _Corrupt(f"the variable {name} is no array of real numbers")
    dtype = np.dtype(TYPES[parts[3][0]]).newbyteorder("<")
    if len(dimensions) % 4 or not 8 <= len(dimensions) <= 32:
        raise _Corrupt(f"the variable {name} has no two to eight dimensions")
    shape = [int(length) for length in np.frombuffer(dimensions, "<i4")]
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(parts[3][1]):
        raise _Corrupt(f"the variable {name} announces {shape} numbers and has {len(parts[3][1])} bytes")
    return name, np.frombuffer(parts[3][1], dtype).reshape(shape, order="F")


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The elements within a matrix: type and bytes; each begins at a multiple of 8."""
    at = 0
    while at < len(data):
        if at + 8 > len(data):
            raise _Corrupt("an array ends within an element")
        kind, length = struct.unpack_from("<II", data, at)
        small = kind >> 16  # the length of up to four bytes, which then stand in the place of the length
        start, length = (at + 4, small) if small else (at + 8, length)
        if start + length > len(data) or small > 4:
            raise _Corrupt("an array ends within an element")
        yield kind & 0xFFFF, data[start : start + length]
        at = at + 8 if small else start + -(-length // 8) * 8
