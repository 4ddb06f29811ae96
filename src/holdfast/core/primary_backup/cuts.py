"""Cuts: snapshots of maps, one moment per partition, that are read while writes continue.

- primary_backup/C-1: A cut is a record in the history of a map in a partition (`Change.PIN`). The primary and every
  backup that apply the record in its turn keep a *pin*: the content of the map after that update. All pins of one
  record are equal.
- primary_backup/C-2: No entry is copied. A pin remembers the former value of each key that has changed since.
- primary_backup/C-3: A cut is answered when all sync backups have acknowledged it and the assignment is still the one
  that named them: every holder has applied the record in its turn. Otherwise the cut is taken again, at a later update.
  (A backup that was filled past the record reports that it has no pin.)
- primary_backup/C-4: Expired entries are removed before the cut, so the content of a pin depends on no clock.
- primary_backup/C-5: A pin stays right when the replica is dropped, replaced or cleared. It is kept until the lease of
  its cut ends.
- primary_backup/C-6: All maps of a partition are cut at one moment, and are confirmed or void together. A cut that is
  requested again shows the same moment or a new one, never some maps of each.
- primary_backup/C-7: One request does some milliseconds of work, and names the partitions that are left.

Example: map m holds {a: 1, b: 2} at update 17. Update 18 is the PIN record of a cut: the pin is empty and reads the
map. Update 19 sets a to 5: the pin stores a: 1 in its overlay. Update 20 adds c: the pin stores c: None ("not there").
Reading the cut merges the overlay over the present map: {a: 1, b: 2}. The pin of a backup, from when it applies update
18, is equal.

Each holder computes remaining times to live by its own clock, from when it applied the record.

Copies that are filled, recovered or repaired hold the updates of a cut, but not the cut; they are not named as holders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from holdfast.config import Settings
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.ack_batch import Completion
from holdfast.core.store.entry_mapping import Entries
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.map_state import MapState
from holdfast.core.store.move_marks import is_closed
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

if TYPE_CHECKING:
    from holdfast.core.primary_backup.lane import Lane

CUT_ID_BYTES = 16
CUTS_MAX = 64
"""Limit for clients of this member; cuts of other members do not count."""
LEASE_MS_MAX = 24 * 3600 * 1000
"""A day: a client that has gone keeps its place for so long."""
LOOKED_AT_MAX = 20_000
"""Expiries and hash words that one request copies; at least one partition is always done."""
ENDED_MAX = 1000
"""Expired entries that one request removes."""


class Pin:
    """Content of one map in one partition at a cut: the present replica, and the keys that have changed since."""

    __slots__ = (
        "_overlay",
        "_state",
        "counter",
        "entries",
        "expiries",
        "hashes",
        "holders",
        "index",
        "known",
        "lineage",
        "map",
        "partition",
        "refused",
        "taken_ns",
        "term",
    )

    def __init__(self, partition: int, held: MapReplica, now_ns: int, index: int = 0) -> None:
        self.partition = partition
        self.index = index
        """In the log of a zone's partition; 0 outside zones."""
        self.map = held.name
        self.counter = held.counter
        self.lineage = held.proven_lineage()
        self.term = held.term
        self.entries = len(held.state.entries)
        self.taken_ns = now_ns
        """Time of the cut by this member's clock, or in a zone by the calendar; times to live are relative to it."""
        self.expiries: dict[bytes, Expiry] = dict(held.state.expiries.items())
        self.hashes: dict[bytes, int] = held.state.hashes.copy()
        self.holders: tuple[MemberId, ...] = ()
        """On the primary, once confirmed."""
        self.known = False
        """On the primary: all holders have confirmed it."""
        self.refused = False
        """On the primary: a holder does not keep it."""
        self._state: MapState | None = held.state
        """None once everything is in the overlay."""
        self._overlay: dict[bytes, bytes | None] = {}
        """Former values of keys that have changed; None: the key was not there."""
        held.state.observe(self)

    def absorb(self, touched: dict[bytes, bytes | None], entries: Entries) -> None:
        """Keep former values. Only the first change of a key since the cut counts."""
        overlay = self._overlay
        if not overlay:
            overlay.update(touched)
            return
        for key, value in touched.items():
            if key not in overlay:
                overlay[key] = value

    def hide(self, keys: Sequence[bytes]) -> None:
        """Leave out entries that had expired at the cut and were not removed."""
        self._overlay.update(dict.fromkeys(keys))
        self.entries -= len(keys)
        assert self.entries >= 0, "only entries of the pin are hidden"

    def complete(self, entries: Entries) -> bool:
        """The map is about to lose all its entries: copy the content and stop observing."""
        whole: dict[bytes, bytes | None] = {**entries, **self._overlay}
        self._overlay = {key: value for key, value in whole.items() if value is not None}
        self._state = None
        assert len(self._overlay) == self.entries, "a pin has the entries of the cut (primary_backup/C-5)"
        return False

    def release(self) -> None:
        state, self._state = self._state, None
        self._overlay = {}
        if state is not None:
            state.unobserve(self)

    def content(self) -> Mapping[bytes, bytes]:
        """The entries at the cut. Do not change them; they are valid until the end of the member's step."""
        state = self._state
        if state is None:
            return self._overlay  # type: ignore[return-value]  # without None once it is complete
        state.fold()
        overlay = self._overlay
        if not overlay:
            return state.entries
        merged: dict[bytes, bytes | None] = {**state.entries, **overlay}
        return {key: value for key, value in merged.items() if value is not None}

    def get(self, key: bytes) -> bytes | None:
        state = self._state
        if state is None:
            return self._overlay.get(key)
        state.fold()
        return self._overlay[key] if key in self._overlay else state.entries.get(key)

    @property
    def changed(self) -> int:
        return len(self._overlay)


@dataclass(slots=True)
class _Kept:
    lease_ms: int
    until_ns: int
    pins: dict[int, dict[str, Pin]] = field(default_factory=dict)
    maps: frozenset[str] | None = None
    """Requested by a client of this member; None: another member has begun the cut."""

    def every(self) -> list[Pin]:
        return [pin for pins in self.pins.values() for pin in pins.values()]

    def confirmed_pins(self, partition: int, names: Sequence[str]) -> list[Pin] | None:
        """The pins of these maps in a partition; None: there are none, or not all are confirmed."""
        there = self.pins.get(partition, {})
        mine = [there[name] for name in names if name in there]
        return mine if mine and all(pin.known for pin in mine) else None


class PinMark(NamedTuple):
    """A map in a partition of a zone at a cut. The pins are on the holders, which may be other members."""

    partition: int
    map: str
    counter: int
    term: int
    entries: int
    holders: tuple[MemberId, ...]


@dataclass(slots=True)
class Taken:
    pins: list[Pin] = field(default_factory=list)
    in_zones: list[PinMark] = field(default_factory=list)
    unwritten: list[tuple[int, str]] = field(default_factory=list)
    """Nothing was ever written in these partitions and maps, so nothing is kept."""
    moved: list[int] = field(default_factory=list)
    """Not served here, with a changed assignment, or impossible to cut."""
    left: list[int] = field(default_factory=list)
    """Not reached within the work limit; request them again."""
    known: bool = True
    """It is known that all sync backups keep the cut."""
    why: str = ""
    """For `known` = False, or for a partition of `moved`; may be empty."""


OnTaken = Callable[[Taken], None]


class _Named(NamedTuple):
    copy: PartitionCopy
    version: int
    """Version of the assignment that named the holders."""
    pins: list[Pin]


class Cuts:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: Sequence[Assignment],
        lane: Lane | None = None,
    ) -> None:
        """`lane`: None: this member only keeps cuts as a backup."""
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._kept: dict[bytes, _Kept] = {}
        self.lane: Lane
        if lane is not None:
            self.lane = lane

    # -- the primary

    @property
    def full(self) -> bool:
        return sum(kept.maps is not None for kept in self._kept.values()) >= CUTS_MAX

    def keeps(self, cut: bytes) -> bool:
        return cut in self._kept

    def begun(self, cut: bytes) -> frozenset[str] | None:
        kept = self._kept.get(cut)
        return None if kept is None else kept.maps

    def take(
        self,
        cut: bytes,
        maps: Sequence[str],
        partitions: Sequence[int],
        lease_ms: int,
        done: OnTaken,
        *,
        passive: bool = False,
    ) -> None:
        """Keep these maps, here and on the backups, in partitions that are served here.

        `done` is called once: when all sync backups keep them, or when that cannot be known. Confirmed pins of the same
        cut stay; a cut has the same maps in every request. `passive`: nothing may be changed, so only this member keeps
        the pins.
        """
        lane, taken = self.lane, Taken()
        named: list[_Named] = []
        serving = lane.leading if passive else lane.serving
        looked_at, may_end = 0, ENDED_MAX
        wanted = list(dict.fromkeys(partitions))
        names = list(dict.fromkeys(maps))
        for at, partition in enumerate(wanted):
            copy = serving[partition]
            if copy is None or any(is_closed(copy.maps, name) for name in names):
                taken.moved.append(partition)
                continue
            kept = self.begin(cut, names, lease_ms)
            pins = kept.confirmed_pins(partition, names)
            if pins is None:
                written = [
                    held for name in names if (held := copy.maps.get(name)) is not None and held.counter
                ]
                effort = sum(len(held.state.expiries) + len(held.state.hashes) for held in written)
                if looked_at and looked_at + effort > LOOKED_AT_MAX:
                    taken.left += wanted[at:]
                    break
                if not passive:
                    may_end = self._remove_ended(copy, written, may_end)
                    if not may_end:
                        taken.left += wanted[at:]
                        break
                looked_at += effort
                for before in [kept.pins.get(partition, {}).pop(name, None) for name in names]:
                    if before is not None:
                        before.release()
                pins = self._pin_all(cut, copy, written, lease_ms, passive=passive)
                named.append(_Named(copy, self._rows[partition].version, pins))
            taken.pins += pins
            have = {pin.map for pin in pins}
            taken.unwritten += [(partition, name) for name in names if name not in have]

        def held_by_all(known: bool) -> None:
            if known:
                self._confirm(cut, named, taken)
            else:
                taken.pins, taken.unwritten = [], []
                taken.known, taken.why = False, lane.unknown_because
            done(taken)

        self._when_kept(held_by_all)

    def _when_kept(self, done: Completion) -> None:
        self.lane.close_batch(done)

    def begin(self, cut: bytes, names: Sequence[str], lease_ms: int) -> _Kept:
        """Begin a cut, or continue one, for a client of this member."""
        kept = self._open(cut, lease_ms)
        if kept.maps is None:
            kept.maps = frozenset(names)
        assert cut in self._kept, "an open cut is kept until its lease ends"
        return kept

    def _remove_ended(self, copy: PartitionCopy, written: Sequence[MapReplica], may_end: int) -> int:
        """Remove expired entries (primary_backup/C-4), and examine at most `may_end` for that; returns how many more
        may be examined.
        """
        for held in written:
            may_end -= self.lane.expire(copy, held, may_end)
            assert may_end >= 0, "the limit of entries is respected"
            if not may_end or held.state.may_end(self._out.now_ns):
                return 0
        return may_end

    def _pin_all(
        self,
        cut: bytes,
        copy: PartitionCopy,
        written: Sequence[MapReplica],
        lease_ms: int,
        *,
        passive: bool,
    ) -> list[Pin]:
        """Pin all these maps of a partition at one moment (primary_backup/C-6)."""
        now_ns = self._out.now_ns
        holding = self._rows[copy.partition].holding
        pins: list[Pin] = []
        for held in written:
            holders = [self._me]
            if not passive:
                self.lane.log(copy, held, Change.PIN, cut, ttl_ms=lease_ms)
                backups = holding[1 : 1 + self._settings.map(held.name).backups]
                holders += [member for member in backups if member is not None]
            pin = self.keep(cut, copy.partition, held, lease_ms)
            assert pin.counter == held.counter, "the last update is the one of the cut (primary_backup/C-1)"
            if passive:
                pin.hide(
                    [key for key, expiry in held.state.expiries.items() if expiry.deadline_ns() <= now_ns]
                )
            pin.holders = tuple(holders)
            pins.append(pin)
        return pins

    def _confirm(self, cut: bytes, named: Sequence[_Named], taken: Taken) -> None:
        """Confirm the pins of partitions whose assignment is unchanged; the other ones are void
        (primary_backup/C-3).
        """
        kept = self._kept.get(cut)
        void: set[int] = set()
        for copy, version, pins in named:
            partition = copy.partition
            there = {} if kept is None else kept.pins.get(partition, {})
            if (
                kept is not None
                and all(there.get(pin.map) is pin and not pin.refused for pin in pins)
                and self.lane.leading[partition] is copy
                and self._rows[partition].version == version
            ):
                for pin in pins:
                    pin.known = True
            else:
                void.add(partition)
        assert all(pin.known for _, _, pins in named for pin in pins if pin.partition not in void), (
            "maps of a partition are confirmed together (primary_backup/C-6)"
        )
        if void:
            taken.pins = [pin for pin in taken.pins if pin.partition not in void]
            taken.unwritten = [one for one in taken.unwritten if one[0] not in void]
            taken.moved += sorted(void)

    def not_kept(self, sender: MemberId, unkept: Sequence[tuple[int, str, bytes, int]]) -> None:
        """A backup reports that it holds the records of these cuts but no pins."""
        for partition, name, cut, counter in unkept:
            pin = self._pin(cut, partition, name)
            if pin is not None and pin.counter == counter and sender in pin.holders:
                pin.refused = True

    # -- primary and backup

    def has(self, partition: int, record: Record) -> bool:
        pin = self._pin(record.key, partition, record.map)
        return pin is not None and pin.counter == record.counter

    def keep(
        self,
        cut: bytes,
        partition: int,
        held: MapReplica,
        lease_ms: int,
        taken_ns: int | None = None,
        index: int = 0,
    ) -> Pin:
        """Pin a map, in place of an earlier pin of the same cut. `taken_ns`: the time of the cut; None: now, by this
        member's clock. `index`: see `Pin`.
        """
        there = self._open(cut, lease_ms).pins.setdefault(partition, {})
        before = there.pop(held.name, None)
        if before is not None:
            before.release()
        assert held.name not in there, "a cut has one pin of a map in a partition"
        pin = there[held.name] = Pin(
            partition, held, self._out.now_ns if taken_ns is None else taken_ns, index
        )
        return pin

    def _open(self, cut: bytes, lease_ms: int) -> _Kept:
        kept = self._kept.get(cut)
        if kept is None:
            kept = self._kept[cut] = _Kept(lease_ms, 0)
        kept.lease_ms = max(1, lease_ms)
        self._renew(kept)
        return kept

    def _pin(self, cut: bytes, partition: int, name: str) -> Pin | None:
        kept = self._kept.get(cut)
        return None if kept is None else kept.pins.get(partition, {}).get(name)

    def find(self, cut: bytes, partition: int, name: str) -> Pin | None:
        kept = self._kept.get(cut)
        if kept is None:
            return None
        self._renew(kept)
        return kept.pins.get(partition, {}).get(name)

    def kept(self, cut: bytes, partitions: Sequence[int], limit: int) -> list[Pin]:
        kept = self._kept.get(cut)
        if kept is None:
            return []
        found = (pin for each in dict.fromkeys(partitions) for pin in kept.pins.get(each, {}).values())
        return list(islice(found, limit))

    def hold(self, cut: bytes, lease_ms: int) -> int:
        """Renew the lease of a cut, or end it (0). Returns the number of pins."""
        kept = self._kept.get(cut)
        if kept is None:
            return 0
        count = len(kept.every())
        if lease_ms:
            kept.lease_ms = lease_ms
            self._renew(kept)
        else:
            self._end(cut)
        return count

    def _renew(self, kept: _Kept) -> None:
        assert kept.lease_ms > 0, "a kept cut has a lease"
        kept.until_ns = self._out.now_ns + kept.lease_ms * MILLISECOND

    def _end(self, cut: bytes) -> None:
        for pin in self._kept.pop(cut).every():
            pin.release()

    def sweep(self) -> None:
        now_ns = self._out.now_ns
        for cut in [cut for cut, kept in self._kept.items() if kept.until_ns <= now_ns]:
            self._end(cut)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def pins(self) -> int:
        return sum(len(kept.every()) for kept in self._kept.values())

    @property
    def changed(self) -> int:
        return sum(pin.changed for kept in self._kept.values() for pin in kept.every())
