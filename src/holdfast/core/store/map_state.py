"""The state of a map in one partition: entries, their expiry, and digests.

Only the primary expires entries (`expiry`). An entry without expiry and without observers costs only its place in
`entries` (`entry_mapping`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, repeat
from operator import add

import msgspec

from holdfast.core.messages import FillEntries, FillShare
from holdfast.core.model.journal_entries import MapSnapshot
from holdfast.core.model.records import PAIR_BYTES, Change, Puts, Record
from holdfast.core.model.sync_request import How
from holdfast.core.store.chunk import ENTRY_OVERHEAD, LOOK_MAX, LOOK_MIN, Chunk, Numbered, Portion, Receiver
from holdfast.core.store.digest import RangeDigests, TableDigests, entry_digest, range_of, whole
from holdfast.core.store.entry_mapping import Entries, NewEntries, PackedEntries, Packing
from holdfast.core.store.expiry import Endings, Expiry
from holdfast.core.store.heaped_endings import HeapedEndings
from holdfast.core.store.state import Observer

NEVER_TIMED = (Record("", 0, Change.EXPIRY), 0)
"""Older than every update."""
TIDIED = 100
"""Ended entries that a backup looks at in one call."""
FOLD_AT = 256
"""Notify observers after so many changed keys; each keeps its former value in memory until then."""


class MapState:
    keyed = True

    __slots__ = (
        "_digests",
        "counts",
        "endings",
        "entries",
        "expiries",
        "hashes",
        "name",
        "observers",
        "packed",
        "touched",
    )

    def __init__(self, name: str, entries: NewEntries = dict) -> None:
        self.name = name
        self.entries: Entries = entries()
        self.packed = self.entries if isinstance(self.entries, PackedEntries) else None
        """The same mapping, if it is a table."""
        self.expiries: Mapping[bytes, Expiry]
        """Read only."""
        self.endings: Endings
        if self.packed is not None:
            self.expiries, self.endings = self.packed.endings()
        else:
            heaped = self.endings = HeapedEndings()
            self.expiries = heaped.expiries
        self.hashes: dict[bytes, int] = {}
        self._digests: RangeDigests | TableDigests | None = None
        """One of `observers`, while digests are kept."""
        self.touched: dict[bytes, bytes | None] | None = None
        """Former values of keys that have changed since observers were notified. None: no observers."""
        self.counts = False
        """The table's own digests are the only observer. The table counts stores through pointers and packed stores at
        once; they are not noted in `touched`, unless the key is there already.
        """
        self.observers: tuple[Observer, ...] = ()

    # -- what both primary and backup do

    def store(
        self, key: bytes, value: bytes, ttl_ms: int, max_idle_ms: int, key_hash: int, now_ns: int
    ) -> None:
        touched = self.touched
        if touched is not None and key not in touched:
            touched[key] = self.entries.get(key)
        self.entries[key] = value
        if ttl_ms or max_idle_ms:
            self.endings.set(key, ttl_ms, max_idle_ms, now_ns)
        elif self.expiries:
            self.endings.drop(key)
        if key_hash:
            self.hashes[key] = key_hash

    def schedule(self, key: bytes, ttl_ms: int, max_idle_ms: int, now_ns: int) -> None:
        if ttl_ms or max_idle_ms:
            self.endings.set(key, ttl_ms, max_idle_ms, now_ns)
        else:
            self.endings.drop(key)

    def drop(self, key: bytes) -> bytes | None:
        value = self.entries.pop(key, None)
        touched = self.touched
        if touched is not None and key not in touched:
            touched[key] = value
        if self.expiries:
            self.endings.drop(key)
        if self.hashes:
            self.hashes.pop(key, None)
        return value

    def wipe(self) -> None:
        self.fold()
        assert not self.touched, "observers were notified before the entries go"
        self._tell(tuple(one for one in self.observers if one.complete(self.entries)))
        self.endings.clear()
        self.entries.clear()
        self.hashes.clear()

    def apply(self, record: Record, now_ns: int) -> bytes | None:
        change = record.change
        if change is Change.SET:
            self.store(record.key, record.value, record.ttl_ms, record.max_idle_ms, record.key_hash, now_ns)
        elif change is Change.REMOVE:
            self.drop(record.key)
        elif change is Change.EXPIRY:
            if record.key in self.entries:
                if self.touched is not None and record.key not in self.touched:
                    # A move of the map sends the new times; for other observers the value is the same.
                    self.touched[record.key] = self.entries[record.key]
                self.schedule(record.key, record.ttl_ms, record.max_idle_ms, now_ns)
        elif change is Change.CLEAR or change is Change.BEGIN:
            self.wipe()
        else:
            assert change is Change.PIN, change
        return None

    def store_all(self, puts: Puts, now_ns: int) -> None:
        """Apply packed stores, which have no expiry and no hash word."""
        packed, touched = self.packed, self.touched
        if packed is not None:
            packed.put_all(puts.sizes, puts.data, touched, self.counts)
        elif self.expiries:
            for key, value in zip(*puts.columns(), strict=True):
                self.store(key, value, 0, 0, 0, now_ns)
        else:
            keys, values = puts.columns()
            if touched is not None:
                for key in keys:
                    if key not in touched:
                        touched[key] = self.entries.get(key)
            self.entries.update(zip(keys, values, strict=True))
        if touched is not None and len(touched) >= FOLD_AT:
            self.fold()

    def former(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def hash_word(self, key: bytes) -> int:
        return self.hashes.get(key, 0)

    def use(self, keys: Sequence[bytes], now_ns: int) -> None:
        self.endings.use(keys, now_ns)

    # -- expiry, on the primary

    def expired(self, key: bytes, now_ns: int, *, touch: bool = True) -> bool:
        return self.endings.ended(key, now_ns, touch)

    def due(self, now_ns: int, limit: int) -> list[bytes]:
        return self.endings.due(now_ns, limit)[0]

    def may_end(self, now_ns: int) -> bool:
        """Whether `due` would look at any entry."""
        first = self.endings.first_ns
        return first is not None and first <= now_ns

    def tidy(self, now_ns: int) -> None:
        self.endings.tidy(now_ns, TIDIED)

    # -- whole states

    def start_from(self, base: MapState) -> None:
        assert base is not self, "the base is another state"
        assert not self.observers, "an incomplete state has no observers"
        assert not self.entries, "the state is new"
        self.entries.update(base.entries)
        if base.expiries:
            self.endings.start_from(base.expiries)
        self.hashes = base.hashes.copy()

    def all_used(self, now_ns: int) -> None:
        self.endings.all_used(now_ns)

    def size(self) -> int:
        return len(self.entries)

    def portion(self, of: Numbered, ranges: frozenset[int] | None) -> Portion | None:
        return MapPortion(self, of, ranges) if self.entries else None

    def receiver(self) -> Receiver:
        return MapReceiver(self)

    def with_remaining_ttl(self, record: Record, now_ns: int) -> Record:
        expiry = self.expiries.get(record.key)
        if not record.ttl_ms or expiry is None or not expiry.ttl_ms:
            return record
        return msgspec.structs.replace(record, ttl_ms=expiry.remaining_ttl_ms(now_ns))

    def write_to(self, taken: MapSnapshot, now_ns: int) -> None:
        """Costs two lists; a table also copies small values."""
        taken.keys.extend(self.entries)
        taken.values.extend(self.entries.values())
        if self.expiries:
            expiries = [self.expiries.get(key) for key in taken.keys]
            taken.ttls_ms.extend(one.remaining_ttl_ms(now_ns) if one else 0 for one in expiries)
            taken.max_idles_ms.extend(one.max_idle_ms if one else 0 for one in expiries)
        if self.hashes:
            taken.key_hashes.extend(self.hashes.get(key, 0) for key in taken.keys)

    def read_from(self, taken: MapSnapshot, at_ns: int) -> None:
        """Times to live continue from `at_ns`."""
        assert not self.entries and self.touched is None, (
            "a checkpoint is read into a new state without observers"
        )
        self.entries.update(zip(taken.keys, taken.values, strict=True))
        if taken.ttls_ms or taken.max_idles_ms:
            zeros = [0] * len(taken.keys)
            columns = zip(taken.keys, taken.ttls_ms or zeros, taken.max_idles_ms or zeros, strict=True)
            for key, ttl_ms, max_idle_ms in columns:
                self.schedule(key, ttl_ms, max_idle_ms, at_ns)
        if taken.key_hashes:
            pairs = zip(taken.keys, taken.key_hashes, strict=True)
            self.hashes = {key: word for key, word in pairs if word}

    # -- observers

    def observe(self, observer: Observer) -> None:
        assert (self.touched is not None) is bool(self.observers), (
            "changes are noted while there are observers"
        )
        self.fold()
        assert not self.touched, "an observer gets no earlier changes"
        self._tell((*self.observers, observer))

    def unobserve(self, observer: Observer) -> None:
        self._tell(tuple(one for one in self.observers if one is not observer))
        assert (self.touched is not None) is bool(self.observers), (
            "changes are noted while there are observers"
        )

    def _tell(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        if not observers:
            self.touched = None
        elif self.touched is None:
            self.touched = {}
        self.counts = len(observers) == 1 and isinstance(observers[0], TableDigests)

    def fold(self) -> None:
        """Notify observers of changes since the last call."""
        touched = self.touched
        if not touched:
            return
        assert self.observers, "changes are noted while there are observers"
        self.touched = {}
        for observer in self.observers:
            observer.absorb(touched, self.entries)

    def settle(self) -> None:
        if self.touched is not None and len(self.touched) >= FOLD_AT:
            self.fold()

    # -- comparing

    def digests(self) -> list[int]:
        self.fold()
        if self._digests is None:
            packed = self.packed
            self._digests = TableDigests(packed) if packed is not None else RangeDigests(self.entries)
            self.observe(self._digests)
        assert self._digests in self.observers, "kept digests observe the state"
        return self._digests.sums

    def compared(self) -> int:
        return whole(self.digests())

    def not_compared(self) -> None:
        if self._digests is not None:
            assert self._digests in self.observers, "kept digests observe the state"
            self.unobserve(self._digests)
            self._digests.end()
            self._digests = None

    def range_digests(self) -> list[int]:
        return RangeDigests.digests(self.entries)

    def damaged(self, *, adopt: bool) -> list[int]:
        """Key ranges whose content differs from the effect of the updates; `adopt`: count it as right. Reads all
        entries. Empty where no digests are kept.
        """
        if self._digests is None:
            return []
        told, found = self.digests(), RangeDigests.digests(self.entries)
        differing = [at for at, (one, other) in enumerate(zip(told, found, strict=True)) if one != other]
        if adopt:
            self._digests.sums = found
        return differing

    def digest(self) -> int:
        if self.packed is not None:
            return whole(self.packed.digests())
        return whole(map(entry_digest, self.entries.keys(), self.entries.values()))


class MapPortion:
    """Entries of one map that are being sent.

    A table packs them in its own order; otherwise keys are listed once, at the beginning. Entries that are added later
    travel as records, and removed ones are left out.
    """

    __slots__ = ("_how", "_keys", "_of", "_packing", "_state", "_taken")

    def __init__(self, state: MapState, of: Numbered, ranges: frozenset[int] | None) -> None:
        self._state = state
        self._of = of
        self._how = How.FULL if ranges is None else How.RANGES
        self._packing: Packing | None = None
        """None: all remaining keys are in `_keys`."""
        self._keys: list[bytes] = []
        if ranges is not None:
            self._keys = [key for key in state.entries if range_of(key) in ranges]
        elif state.packed is not None:
            self._packing = state.packed.packing()
        else:
            self._keys = list(state.entries)
        self._taken = 0

    def look(self, count: int) -> tuple[list[bytes], list[bytes]]:
        entries = self._state.entries
        while keys := self._keys[self._taken : self._taken + count]:
            try:
                return keys, list(map(entries.__getitem__, keys))
            except KeyError:
                # Some have been removed since.
                self._keys[self._taken : self._taken + count] = [key for key in keys if key in entries]
        return [], []

    def add_to(self, chunk: Chunk, limit: int, now_ns: int) -> bool:
        state = self._state
        packs = chunk.packs and not state.expiries and not state.hashes
        if self._packing is not None:
            if not packs:
                # They follow the keys that were set apart before.
                self._keys += self._packing.rest()
                self._packing = None
            elif self._add_walked(self._packing, chunk, limit):
                return False
        if self._taken == len(self._keys):
            return self._packing is None
        if packs and state.packed is not None:
            full = self._add_packed(state.packed, chunk, limit)
            if full or self._taken == len(self._keys):
                return not full and self._packing is None
        return self._add_listed(chunk, limit, now_ns) and self._packing is None

    def _add_walked(self, packing: Packing, chunk: Chunk, limit: int) -> bool:
        """Returns whether more do not fit. Unpackable ones go to `_keys`."""
        sizes, data, full = packing.pack(limit - chunk.size, some=not chunk.size)
        self._add_part(chunk, sizes, data)
        self._keys += packing.apart()
        if packing.ended:
            self._packing = None
        assert full or self._packing is None or self._taken < len(self._keys) or chunk.size >= limit, (
            "packing stops only when the chunk is full or nothing is left"
        )
        return full

    def _add_packed(self, entries: PackedEntries, chunk: Chunk, limit: int) -> bool:
        """Small values of `_keys`; returns whether the next does not fit."""
        sizes, data, taken, full = entries.pack(
            self._keys, self._taken, limit - chunk.size, some=not chunk.size
        )
        self._taken += taken
        self._add_part(chunk, sizes, data)
        return full

    def _add_part(self, chunk: Chunk, sizes: bytes, data: bytes) -> None:
        if sizes:
            chunk.maps.append(FillEntries(self._of.name, self._of.counter, sizes=sizes, data=data))
            chunk.count(self._how, len(data) + ENTRY_OVERHEAD * (len(sizes) // PAIR_BYTES))

    def _add_listed(self, chunk: Chunk, limit: int, now_ns: int) -> bool:
        part = FillEntries(self._of.name, self._of.counter)
        room, ended = True, False
        while room:
            keys, values = self.look(chunk.look)
            if not keys:
                ended = True
                break
            left = limit - chunk.size
            size = sum(map(len, keys)) + sum(map(len, values)) + ENTRY_OVERHEAD * len(keys)
            average = size / len(keys)
            if size > left:
                room = False
                size = _cut(keys, values, left, at_least=0 if chunk.size else 1)
            part.keys.extend(keys)
            part.values.extend(values)
            chunk.count(self._how, size)
            self._taken += len(keys)
            # A chunk that is nearly full may go.
            room = room and limit - chunk.size > limit // 8
            left = limit - chunk.size if room else limit
            chunk.look = max(LOOK_MIN, min(LOOK_MAX, int(left / average)))
        assert len(part.keys) == len(part.values), "each key has a value"
        assert not ended or self._taken == len(self._keys), "the last part comes when no key is left"
        if part.keys:
            self._add_columns(part, now_ns)
            chunk.maps.append(part)
        return ended

    def _add_columns(self, part: FillEntries, now_ns: int) -> None:
        state = self._state
        if state.expiries:
            expiries = [state.expiries.get(key) for key in part.keys]
            if any(expiries):
                part.ttls_ms.extend(one.remaining_ttl_ms(now_ns) if one else 0 for one in expiries)
                part.max_idles_ms.extend(one.max_idle_ms if one else 0 for one in expiries)
        if state.hashes:
            hashes = [state.hashes.get(key, 0) for key in part.keys]
            if any(hashes):
                part.key_hashes.extend(hashes)
        assert len(part.ttls_ms) in (0, len(part.keys)), "a column is empty or has a value for each key"
        assert len(part.key_hashes) in (0, len(part.keys)), "a column is empty or has a value for each key"


def _cut(keys: list[bytes], values: list[bytes], left: int, *, at_least: int) -> int:
    """The first entries that fit into `left` bytes; returns their size."""
    lengths = map(add, map(len, keys), map(len, values))
    sizes = list(accumulate(map(add, lengths, repeat(ENTRY_OVERHEAD))))
    fit = max(at_least, bisect_right(sizes, left))
    del keys[fit:], values[fit:]
    return sizes[fit - 1] if fit else 0


class MapReceiver:
    """Fills a map from entries and records in any order: for each key the newest information wins (primary_backup/F-2).

    For ranges that are sent in full it knows the update counter of what it holds for each key: that of the record,
    or that of the chunk. Example: record 20 sets a, then a chunk of counter 18 brings an older a: it is skipped. A
    chunk's keys are kept as they came, listed or packed, and searched only for a record that is not newer than every
    chunk; so a chunk costs little more than an update of the dictionary.
    """

    __slots__ = (
        "_begins",
        "_chunks",
        "_cleared",
        "_latest",
        "_newest",
        "_ranges",
        "_state",
        "_timed",
        "_told",
    )

    def __init__(self, state: MapState) -> None:
        self._state = state
        self._begins = 0
        """When the content was taken."""
        self._ranges: frozenset[int] | None = None
        """Sent in full; None: all."""
        self._told: dict[bytes, int] = {}
        self._latest = 0
        """Highest counter in `_told`."""
        self._timed: dict[bytes, tuple[Record, int]] = {}
        self._chunks: list[tuple[int, Collection[bytes]]] = []
        self._newest = 0
        """Highest update counter of any chunk."""
        self._cleared = 0

    def begin(self, counter: int, ranges: frozenset[int] | None) -> None:
        self._begins, self._ranges = counter, ranges
        if ranges:
            for key in [key for key in self._state.entries if range_of(key) in ranges]:
                self._state.drop(key)

    def pour(self, part: FillEntries | FillShare, now_ns: int) -> None:
        if not isinstance(part, FillEntries) or part.counter < self._cleared:
            return
        state, counter, told = self._state, part.counter, self._told
        puts = part.packed() if part.sizes else None
        keys = self._keys_of(puts) if puts is not None else part.keys
        self._chunks.append((counter, keys))
        self._newest = max(self._newest, counter)
        newer: frozenset[bytes] = frozenset()
        if self._latest > counter:
            newer = frozenset(key for key in keys if told.get(key, 0) > counter)
        beside = bool(part.ttls_ms or part.max_idles_ms or part.key_hashes)
        if newer or beside or self._timed or state.expiries:
            self._pour_each(part, keys, part.values if puts is None else puts.columns()[1], newer, now_ns)
        elif puts is not None:
            state.store_all(puts, now_ns)
        else:
            state.entries.update(zip(keys, part.values, strict=True))

    def _keys_of(self, puts: Puts) -> Collection[bytes]:
        packed = self._state.packed
        return puts.keys() if packed is None else packed.keys_in(puts.sizes, puts.data)

    def _pour_each(
        self,
        part: FillEntries,
        keys: Collection[bytes],
        values: list[bytes],
        newer: frozenset[bytes],
        now_ns: int,
    ) -> None:
        state, timed, counter = self._state, self._timed, part.counter
        columns = zip(
            keys,
            values,
            part.ttls_ms or repeat(0),
            part.max_idles_ms or repeat(0),
            part.key_hashes or repeat(0),
            strict=False,
        )
        for key, value, ttl_ms, max_idle_ms, key_hash in columns:
            if key in newer:
                continue
            state.store(key, value, ttl_ms, max_idle_ms, key_hash, now_ns)
            later, came_ns = timed.get(key, NEVER_TIMED)
            if later.counter > counter:
                state.schedule(key, later.ttl_ms, later.max_idle_ms, came_ns)

    def land(self) -> None:
        """Entries count as they come."""

    def take(self, record: Record, now_ns: int) -> None:
        """Outside of the full ranges, or newer than what is known of its key."""
        if record.change is Change.CLEAR or record.change is Change.BEGIN:
            self._clear(record.counter)
        elif record.change is Change.PIN:
            pass  # content does not change, and a replica that is being filled keeps no cut
        elif self._ranges is not None and range_of(record.key) not in self._ranges:
            self._state.apply(record, now_ns)
        elif self._is_new(record.key, record.counter):
            self._change(record, now_ns)

    def _change(self, record: Record, now_ns: int) -> None:
        key = record.key
        self._state.apply(record, now_ns)
        if record.change is Change.EXPIRY:
            # The value may still come.
            self._timed[key] = (record, now_ns)
            return
        self._told[key] = record.counter
        self._latest = max(self._latest, record.counter)
        later, came_ns = self._timed.get(key, NEVER_TIMED)
        if later.counter > record.counter:
            self._state.apply(later, came_ns)

    def _is_new(self, key: bytes, counter: int) -> bool:
        """Whether this information about a key is not older than what is known."""
        if counter <= self._begins or counter < self._cleared or counter < self._told.get(key, 0):
            return False
        if counter >= self._newest:
            return True
        return not any(counter < later and key in keys for later, keys in self._chunks)

    def _clear(self, counter: int) -> None:
        later = {key for at, keys in self._chunks if at >= counter for key in keys}
        for key in list(self._state.entries):
            if self._told.get(key, 0) < counter and key not in later:
                self._state.drop(key)
        self._cleared = max(counter, self._cleared)
