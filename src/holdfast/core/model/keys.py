"""The partition of a key (H7), as every Hazelcast client computes it."""

from __future__ import annotations

from collections.abc import Iterable

from mmh3 import mmh3_32_sintdigest as murmur3

SEED = 0x01000193

TYPE_ID_BYTES = 4
"""A serialised key begins with its type id, which is not hashed."""

LOWEST_INT32 = -(2**31)


def partition_of(key: bytes, key_hash: int, partition_count: int) -> int:
    """`key` is a 4-byte type id and the payload. `key_hash` is the hash word that came with it, as signed
    int32: a key with a partitioning strategy carries the hash of something else than its payload. 0: the
    client set none.
    """
    return index_of(key_hash or murmur3(key[TYPE_ID_BYTES:], SEED), partition_count)


def partitions_of(keys: Iterable[bytes], partition_count: int) -> list[int]:
    return [
        abs(found) % partition_count if (found := murmur3(key[TYPE_ID_BYTES:], SEED)) != LOWEST_INT32 else 0
        for key in keys
    ]


def index_of(key_hash: int, partition_count: int) -> int:
    """The lowest int32 has no absolute value in int32, and goes to 0."""
    if key_hash == LOWEST_INT32:
        return 0
    return abs(key_hash) % partition_count
