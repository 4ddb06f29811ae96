"""Many entries at a time as Arrow arrays: encoded and decoded in bulk, and requested by partition, all at once."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import chain
from typing import Any, Protocol

from holdfast.errors import NotInstalled, ProtocolError
from holdfast.serialization.serializers import Serializers
from holdfast.wire.values import BOOLEAN, BYTES, DOUBLE, INTEGER, JSON, LONG, STRING

try:
    import pyarrow as pa
    import pyarrow.types as kinds
except ImportError as absent:
    raise NotInstalled.of("get_many and put_many are about Arrow arrays", "pyarrow", "arrow") from absent

_BLOCK = _INT = struct.Struct(">ii").pack
_LONG, _DOUBLE = struct.Struct(">iq").pack, struct.Struct(">id").pack
_NARROW = 1 << 31


class StoredEntries(Protocol):
    serializers: Serializers

    async def get_stored(self, keys: Iterable[bytes]) -> dict[bytes, bytes]: ...

    async def put_stored(self, entries: Iterable[tuple[bytes, bytes]]) -> None: ...


async def get_many(
    of: StoredEntries, keys: pa.Array[Any], value_type: pa.DataType | None = None
) -> pa.Array[Any]:
    """The values of these keys in their order, null for keys without a value. Not a snapshot.

    `value_type`: type of the result. Without it all values must be of one kind: text, integers (int64), floats
    (float64), booleans or bytes; lists and dictionaries are returned as JSON text. Raises Refused; TypeError or
    ValueError for keys or values that do not fit.
    """
    stored = to_stored_many(keys, of.serializers)
    found = await of.get_stored(stored)
    return from_stored_many([found.get(key) for key in stored], value_type, of.serializers)


async def put_many(of: StoredEntries, keys: pa.Array[Any], values: pa.Array[Any]) -> None:
    """Store these entries, each by itself. Raises Refused if certainly none was stored, Unknown if some may
    be: then put them all again. Raises TypeError or ValueError before anything is sent.
    """
    stored, content = to_stored_many(keys, of.serializers), to_stored_many(values, of.serializers)
    if len(stored) != len(content):
        raise ValueError(f"{len(stored)} keys and {len(content)} values")
    await of.put_stored(zip(stored, content, strict=True))


def to_stored_many(array: Any, serializers: Serializers) -> list[bytes]:
    """Raises ValueError for a null, TypeError for a type that cannot be stored."""
    if not hasattr(array, "null_count"):
        kind = type(array).__name__
        raise TypeError(
            f"a pyarrow array is needed, not {kind}: pass pyarrow.array(...), or use get_all and put_all"
        )
    if isinstance(array, pa.ChunkedArray):
        return list(chain.from_iterable(to_stored_many(chunk, serializers) for chunk in array.chunks))
    if array.null_count:
        raise ValueError("null is neither a key nor a value: remove the key instead")
    if kinds.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return [_BLOCK(STRING, len(each)) + each for each in array.cast(pa.large_binary()).to_pylist()]
    if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind):
        return [_BLOCK(BYTES, len(each)) + each for each in array.to_pylist()]
    if kinds.is_integer(kind) and not kinds.is_uint64(kind):
        # 32 bits if the number fits, as when one value is stored.
        return [
            _INT(INTEGER, each) if -_NARROW <= each < _NARROW else _LONG(LONG, each)
            for each in array.cast(pa.int64()).to_pylist()
        ]
    if kinds.is_floating(kind):
        return [_DOUBLE(DOUBLE, each) for each in array.cast(pa.float64()).to_pylist()]
    return list(map(serializers.dump_value, array.to_pylist()))


def from_stored_many(
    stored: list[bytes | None], value_type: pa.DataType | None, serializers: Serializers
) -> pa.Array[Any]:
    """Raises TypeError if the types of the values differ or do not fit `value_type`."""
    prefixes = {each[:4] for each in stored if each is not None}
    found = {int.from_bytes(prefix, "big", signed=True) for prefix in prefixes}
    try:
        array = _decoded(stored, found)
        if array is None:
            if value_type is None and found:
                raise TypeError(f"values of the types {sorted(found)}: name the value_type of the answer")
            return pa.array(map(serializers.load, stored), value_type)
        return array if value_type is None or array.type == value_type else array.cast(value_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unfit:
        raise TypeError(f"the values do not fit {value_type}: {unfit}") from unfit
    except struct.error as broken:
        raise ProtocolError(f"a stored value is broken: {broken}") from broken


def _decoded(stored: list[bytes | None], found: set[int]) -> pa.Array[Any] | None:
    if found and found <= {STRING, JSON}:
        return pa.array([each and each[8:] for each in stored], pa.binary()).cast(pa.string())
    if found == {BYTES}:
        return pa.array([each and each[8:] for each in stored], pa.binary())
    if found == {BOOLEAN}:
        return pa.array([None if each is None else each[4:5] != b"\0" for each in stored], pa.bool_())
    if found and found <= {INTEGER, LONG}:
        return _numbers([each if each is None else _widened(each) for each in stored], "q", pa.int64())
    if found == {DOUBLE}:
        return _numbers([each and each[4:] for each in stored], "d", pa.float64())
    return None


def _widened(stored: bytes) -> bytes:
    if len(stored) == 12:
        return stored[4:]
    return (b"\xff\xff\xff\xff" if stored[4] & 0x80 else b"\0\0\0\0") + stored[4:]


def _numbers(raw: list[bytes | None], form: str, kind: pa.DataType) -> pa.Array[Any]:
    """Numbers of 8 bytes in this `struct` format. Raises struct.error if one is shorter or longer."""
    numbers = struct.unpack(f">{len(raw)}{form}", b"".join([each or bytes(8) for each in raw]))
    return pa.array(
        [None if each is None else number for each, number in zip(raw, numbers, strict=True)], kind
    )
