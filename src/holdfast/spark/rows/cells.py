"""Columns of bytes, built a whole column at a time, for encoders and the writer. Needs numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.keys import SEED, TYPE_ID_BYTES

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[Any]]
Cells = Any


def fixed(matrix: Bytes) -> Cells:
    rows, width = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int64) * width
    return from_buffers(offsets, np.ascontiguousarray(matrix).reshape(-1))


def from_buffers(offsets: Numbers, data: Bytes) -> Cells:
    ends = np.ascontiguousarray(offsets, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def to_buffers(cells: Cells) -> tuple[Numbers, Bytes]:
    """Offsets of binary or text cells, starting at 0, and their bytes. Nulls must have no bytes."""
    _, offsets, data = cells.buffers()
    rows = len(cells)
    if not rows:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32, rows + 1, 4 * cells.offset)
    first, last = int(ends[0]), int(ends[-1])
    found = np.frombuffer(data, np.uint8, last - first, first) if last > first else np.zeros(0, np.uint8)
    return (ends - np.int32(first) if first else ends), found


def lengths(cells: Cells) -> Numbers:
    offsets, _ = to_buffers(cells)
    return np.diff(offsets)


def joined(*parts: Cells) -> Cells:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def big_endian(numbers: Numbers, code: str) -> Bytes:
    wide = np.ascontiguousarray(numbers, dtype=np.dtype(code))
    return wide.view(np.uint8).reshape(len(wide), wide.dtype.itemsize)


def headed(type_id: int, matrix: Bytes) -> Cells:
    rows, width = matrix.shape
    whole = np.empty((rows, 4 + width), np.uint8)
    whole[:, :4] = np.frombuffer(type_id.to_bytes(4, "big", signed=True), np.uint8)
    whole[:, 4:] = matrix
    return fixed(whole)


def counted(type_id: int, cells: Cells) -> Cells:
    return joined(headed(type_id, big_endian(lengths(cells), ">i4")), cells)


# -- murmur3


def partitions_of(keys: Cells, partition_count: int) -> Numbers:
    """`core.model.keys.partition_of` for whole columns."""
    offsets, data = to_buffers(keys)
    hashes = murmur3(data, offsets[:-1].astype(np.int64) + TYPE_ID_BYTES, np.diff(offsets) - TYPE_ID_BYTES)
    # The absolute value of the lowest int32 is no int32; such keys belong to partition 0.
    wide = np.abs(hashes.astype(np.int64))
    wide[hashes == np.iinfo(np.int32).min] = 0
    return (wide % partition_count).astype(np.int32)


def murmur3(data: Bytes, starts: Numbers, sizes: Numbers, seed: int = SEED) -> Numbers:
    """The signed 32-bit hash of each piece of `data`."""
    rows = len(starts)
    state = np.full(rows, seed, np.uint32)
    if not rows:
        return state.view(np.int32)
    blocks = sizes >> 2
    most = int(blocks.max())
    if int(blocks.min()) == most:
        for block in range(most):
            _mix(state, _word(data, starts + 4 * block))
    else:
        # The longest first: those that have a block number b are always at the front.
        order = np.argsort(-blocks, kind="stable")
        ranked = blocks[order]
        mixed, begin = state[order], starts[order]
        for block in range(most):
            live = int(np.searchsorted(-ranked, -block, side="left"))
            part = mixed[:live]
            _mix(part, _word(data, begin[:live] + 4 * block))
        state[order] = mixed
    _mix_tails(state, data, starts + 4 * blocks, sizes & 3)
    state ^= sizes.astype(np.uint32)
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)
    return state.view(np.int32)


def _mix(state: Numbers, words: Numbers) -> None:
    state ^= _scrambled(words)
    state[:] = (state << np.uint32(13)) | (state >> np.uint32(19))
    state *= np.uint32(5)
    state += np.uint32(0xE6546B64)


def _scrambled(words: Numbers) -> Numbers:
    words = words * np.uint32(0xCC9E2D51)
    words = (words << np.uint32(15)) | (words >> np.uint32(17))
    return words * np.uint32(0x1B873593)


def _word(data: Bytes, at: Numbers) -> Numbers:
    found = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        found |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found


def _mix_tails(state: Numbers, data: Bytes, at: Numbers, sizes: Numbers) -> None:
    for size in (1, 2, 3):
        rows = np.flatnonzero(sizes == size)
        if len(rows):
            words = np.zeros(len(rows), np.uint32)
            for byte in range(size):
                words |= data[at[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
            state[rows] ^= _scrambled(words)
