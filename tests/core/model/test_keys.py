"""A key's partition is the one that every client of the protocol computes."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model import keys as key_module
from holdfast.core.model.keys import index_of, partition_of, partitions_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the client still imports asyncore
    from hazelcast.hash import hash_to_index, murmur_hash3_x86_32

TYPE_ID = b"\xff\xff\xff\xf5"

VECTORS = [
    (b"", -1585187909, 238, 8),
    (b"a", -1686100800, 46, 10),
    (b"ab", 312914265, 50, 4),
    (b"abc", -2068121803, 208, 0),
    (b"abcd", -973615161, 236, 2),
    (b"hello", 1425223722, 34, 10),
    (b"hazelcast", 1436801051, 243, 4),
    (bytes(range(16)), 2035805824, 166, 8),
]


@pytest.mark.parametrize(("payload", "signed", "of_271", "of_11"), VECTORS)
def test_known_vectors(payload: bytes, signed: int, of_271: int, of_11: int) -> None:
    assert partition_of(TYPE_ID + payload, 0, 271) == of_271 == index_of(signed, 271)
    assert partition_of(TYPE_ID + payload, 0, 11) == of_11 == index_of(signed, 11)


@given(payload=st.binary(max_size=64), type_id=st.binary(min_size=4, max_size=4), count=st.integers(1, 5000))
def test_agrees_with_the_official_client(payload: bytes, type_id: bytes, count: int) -> None:
    # The client's Data begins with the hash word and the type id.
    theirs = hash_to_index(murmur_hash3_x86_32(bytes(4) + type_id + payload), count)
    assert partition_of(type_id + payload, 0, count) == theirs


@given(key_hash=st.integers(-(2**31), 2**31 - 1).filter(bool), count=st.integers(1, 5000))
def test_a_hash_word_replaces_the_payloads_hash(key_hash: int, count: int) -> None:
    found = partition_of(TYPE_ID + b"anything", key_hash, count)
    assert found == (0 if key_hash == -(2**31) else abs(key_hash) % count)


def test_the_lowest_int_goes_to_zero() -> None:
    assert partition_of(TYPE_ID + b"x", -(2**31), 271) == 0


@given(st.lists(st.binary(min_size=4, max_size=20), max_size=20), st.integers(1, 1000))
def test_many_keys_at_once_go_where_each_of_them_goes(keys: list[bytes], count: int) -> None:
    assert partitions_of(keys, count) == [partition_of(key, 0, count) for key in keys]


def test_the_lowest_hash_goes_to_the_first_partition_also_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_module, "murmur3", lambda payload, seed: -(2**31))
    assert partitions_of([TYPE_ID + b"x"], 271) == [0]
