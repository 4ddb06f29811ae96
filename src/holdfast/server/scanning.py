"""A scan: the entries of a map in one partition at one moment, sent page by page (`wire.own.Scan`)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

import msgspec

from holdfast.core.primary_backup.cuts import Pin
from holdfast.core.store.digest import range_of
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.replica import MapReplica
from holdfast.wire import own
from holdfast.wire.values import JSON

PROJECTED_ROWS_MAX = 2048
"""Rows per page with projected fields, about 2 ms of work."""
PROJECTED_BYTES_MAX = 2 << 20
"""Bytes of such a page's values before the projection (at least one value), some ms of work, too."""
FIELDS_MAX = 1000
_JSON_ID = JSON.to_bytes(4, "big", signed=True)
_AWKWARD = re.compile(r'["\\\x00-\x1f]')
"""Characters that need escapes in a field's name."""
_HEAD_BYTES = 8
"""Type id and length before stored JSON."""


class Scanned:
    """The rows of one scan. Costs two references per entry; small values of a table are copied."""

    __slots__ = (
        "_at",
        "_expiries",
        "_hashes",
        "_keys",
        "_looks_in",
        "_now_ns",
        "_project",
        "_values",
        "bytes_max",
        "counter",
        "number",
        "rows_max",
        "term",
    )

    def __init__(
        self, question: own.Scan, held: MapReplica | None, now_ns: int, pin: Pin | None = None
    ) -> None:
        """Rows of `held` now, or of `pin` at its cut."""
        self.number = question.id
        self.rows_max = max(1, min(question.rows_max, own.PAGE_ROWS_MAX))
        self.bytes_max = max(1, min(question.bytes_max, own.PAGE_BYTES_MAX))
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._at = 0
        self._now_ns = now_ns
        self._expiries: list[Expiry | None] = []
        self._hashes: list[int] = []
        self._project: Callable[[list[bytes]], list[bytes]] | None = None
        self._looks_in = False
        """Whether values are parsed, which takes time."""
        if question.fields is not None:
            self._project = projection(tuple(dict.fromkeys(question.fields)))
            if question.fields:
                self._looks_in = True
                self.rows_max = min(self.rows_max, PROJECTED_ROWS_MAX)
        self.term = 0
        expiries: Mapping[bytes, Expiry] = {}
        hashes: dict[bytes, int] = {}
        if pin is not None:
            self.counter, self.term = pin.counter, pin.term
            self._now_ns = pin.taken_ns
            self._take_in(question, _of_pin(question, pin))
            expiries, hashes = pin.expiries, pin.hashes
        elif held is not None:
            self.counter = held.counter
            self._take_in(question, _of_copy(question, held, now_ns))
            expiries, hashes = held.state.expiries, held.state.hashes
        else:
            self.counter = 0
        if question.any_copy and expiries:
            self._expiries = [expiries.get(key) for key in self._keys]
        if question.any_copy and hashes:
            self._hashes = [hashes.get(key, 0) for key in self._keys]

    def _take_in(self, question: own.Scan, found: Mapping[bytes, bytes] | list[tuple[bytes, bytes]]) -> None:
        if question.ranges:
            wanted = frozenset(question.ranges)
            items = found if isinstance(found, list) else found.items()
            found = [item for item in items if range_of(item[0]) in wanted]
        limit = question.limit if question.limit > 0 else None
        if isinstance(found, list):
            self._keys = [key for key, _ in islice(found, limit)]
            self._values = [value for _, value in islice(found, limit)]
        else:
            self._keys = list(islice(found, limit))
            self._values = list(islice(found.values(), limit))

    @property
    def ended(self) -> bool:
        return self._at >= len(self._keys)

    def take(self, number: int) -> own.Page:
        keys = self._keys[self._at : self._at + self.rows_max]
        values = self._values[self._at : self._at + self.rows_max]
        if self._project is not None:
            if self._looks_in:
                values = values[: _up_to(map(len, values), PROJECTED_BYTES_MAX)]
                keys = keys[: len(values)]
            values = self._project(values)
        rows = _up_to(
            (len(key) + len(value) for key, value in zip(keys, values, strict=True)), self.bytes_max
        )
        taken = slice(self._at, self._at + min(rows, len(keys)))
        self._at = taken.stop
        expiries = self._expiries[taken]
        return own.Page(
            number,
            not self.ended,
            self.counter,
            own.ColumnBatch.of(keys[:rows], values[:rows]),
            [one.remaining_ttl_ms(self._now_ns) if one else 0 for one in expiries],
            [one.max_idle_ms if one else 0 for one in expiries],
            self._hashes[taken],
            self.term,
        )


def _up_to(sizes: Iterable[int], size_max: int) -> int:
    return bisect_left(list(accumulate(sizes)), size_max) + 1


def _of_pin(question: own.Scan, pin: Pin) -> Mapping[bytes, bytes] | list[tuple[bytes, bytes]]:
    """Content of a cut. Expired entries were removed before it, so the present time does not matter."""
    if not question.keys:
        return pin.content()
    return _chosen(question.keys, pin.get)


def _of_copy(
    question: own.Scan, held: MapReplica, now_ns: int
) -> Mapping[bytes, bytes] | list[tuple[bytes, bytes]]:
    found: Mapping[bytes, bytes] | list[tuple[bytes, bytes]] = held.state.entries
    if question.keys:
        found = _chosen(question.keys, held.state.entries.get)
    if held.state.expiries and not question.any_copy:
        items = found if isinstance(found, list) else found.items()
        found = [item for item in items if not held.state.expired(item[0], now_ns, touch=False)]
    return found


def _chosen(keys: Iterable[bytes], get: Callable[[bytes], bytes | None]) -> list[tuple[bytes, bytes]]:
    found = ((key, get(key)) for key in dict.fromkeys(keys))
    return [(key, value) for key, value in found if value is not None]


@lru_cache(maxsize=64)
def projection(fields: tuple[str, ...]) -> Callable[[list[bytes]], list[bytes]]:
    """A function that reduces JSON objects to these fields, in this order and form; absent fields are left
    out. Other values are unchanged. Without fields every value becomes empty.
    """
    if not fields:
        return lambda values: [b""] * len(values)
    cut_down = _of_all_fields(fields) if _AWKWARD.search("".join(fields)) else _of_these_fields(fields)

    def project(values: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for value in values:
            kept = value
            if value.startswith(_JSON_ID):
                try:
                    cut = cut_down(memoryview(value)[_HEAD_BYTES:])
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    pass  # not an object, or no JSON at all
                else:
                    kept = _JSON_ID + len(cut).to_bytes(4, "big") + cut
            found.append(kept)
        return found

    return project


def _of_these_fields(fields: tuple[str, ...]) -> Callable[[memoryview], bytes]:
    names = [f"f{at}" for at in range(len(fields))]
    kind: Any = msgspec.Raw | msgspec.UnsetType
    some = msgspec.defstruct(
        "Some",
        [(name, kind, msgspec.UNSET) for name in names],
        rename=dict(zip(names, fields, strict=True)),
        gc=False,
    )
    decode, encode = msgspec.json.Decoder(some).decode, msgspec.json.Encoder().encode
    return lambda document: encode(decode(document))


def _of_all_fields(fields: tuple[str, ...]) -> Callable[[memoryview], bytes]:
    decode, encode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode, msgspec.json.Encoder().encode

    def cut_down(document: memoryview) -> bytes:
        found = decode(document)
        return encode({name: found[name] for name in fields if name in found})

    return cut_down
