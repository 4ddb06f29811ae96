"""Cuts: maps as they were at one moment of each partition, kept for reading while the partitions go on (S1, S2).

- primary_backup/C-1: A cut is a record in the history of a map in a partition (`Change.PIN`). The primary and every
  backup that apply it in its turn keep a *pin*: what the map held after that update. All pins of one record are
  equal.
- primary_backup/C-2: No entry is copied. A pin remembers the former value of each key that has changed since. Where
  no pin is kept, a write costs what it did before.
- primary_backup/C-3: It is answered when all sync backups keep it and the row is still the one that named them: every
  holder that the answer names has applied the record in its turn. Else it is taken again, at a later update. (A backup
  that is filled past the record meanwhile says so.)
- primary_backup/C-4: What has ended is taken out before the cut, so that no clock has a say in what a pin holds.
- primary_backup/C-5: A pin stays right when the copy is dropped, replaced or cleared. It is kept until the lease of its
  cut ends.
- primary_backup/C-6: All maps of a partition are cut at one moment. They are made known together, and what is void is
  all of them: a cut that is asked for again shows the same moment, or another one, never some maps of each.
- primary_backup/C-7: One question is little work (some ms): its partitions are gone through until it was enough, and
  the rest named.

Times to live at a cut are told as they were by each holder's own clock when it applied the record: between two holders
they differ by as much as the record was on its way.

Copies that are filled, recovered or repaired hold the updates of a cut, but not the cut: they are not named as holders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from holdfast.config import Settings
from holdfast.core.machine import Outbox
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.primary_backup.ack_batch import Completion
from holdfast.core.store.entry_mapping import Entries
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

if TYPE_CHECKING:
    from holdfast.core.primary_backup.lane import Lane

CUTS_MAX = 64
"""Cuts that a member begins to keep for clients; those that others have begun do not count."""
LEASE_MS_MAX = 24 * 3600 * 1000
"""A day: who is gone shuts out others for so long."""
LOOKED_AT_MAX = 20_000
"""Expiries and hash words that are copied in answer to one question, but for one partition at least."""
ENDED_MAX = 1000
"""Entries whose time is over that are removed in answer to one question."""


class Pin:
    """What one map held in one partition at a cut. It reads the map's copy as it is now, and what has changed since."""

    __slots__ = (
        "_overlay",
        "_state",
        "counter",
        "entries",
        "expiries",
        "hashes",
        "holders",
        "known",
        "map",
        "partition",
        "refused",
        "taken_ns",
        "term",
    )

    def __init__(self, partition: int, held: MapReplica, now_ns: int) -> None:
        """From now on; the last update of `held` is the one of the cut."""
        self.partition = partition
        self.map = held.name
        self.counter = held.counter
        self.term = held.term
        self.entries = len(held.state.entries)
        self.taken_ns = now_ns
        """By this member's clock: what is left of times to live is told as it was then, here. Another holder applied
        the cut, and each entry before it, at moments of its own, so it tells a little more or less."""
        self.expiries: dict[bytes, Expiry] = dict(held.state.expiries.items())
        self.hashes: dict[bytes, int] = held.state.hashes.copy()
        self.holders: tuple[MemberId, ...] = ()
        """On the primary that made it: who keeps it, once it is known."""
        self.known = False
        """On that primary: whether all holders have said that they keep it."""
        self.refused = False
        """On that primary: whether a holder has said that it does not keep it."""
        self._state: MapState | None = held.state
        """None when everything is in the overlay."""
        self._overlay: dict[bytes, bytes | None] = {}
        """Keys that have changed since, with what they had at the cut; None: nothing."""
        held.state.observe(self)

    def absorb(self, touched: dict[bytes, bytes | None], entries: Entries) -> None:
        """These keys have changed, from what is given: that counts for those of which nothing is known yet."""
        overlay = self._overlay
        if not overlay:
            overlay.update(touched)
            return
        for key, value in touched.items():
            if key not in overlay:
                overlay[key] = value

    def hide(self, keys: Sequence[bytes]) -> None:
        """These entries were over at the cut, and are still there."""
        self._overlay.update(dict.fromkeys(keys))
        self.entries -= len(keys)
        assert self.entries >= 0, "no more is hidden than was there"

    def complete(self, entries: Entries) -> bool:
        """All entries, which are these, are about to go: from now on it holds them itself, and observes no more."""
        whole: dict[bytes, bytes | None] = {**entries, **self._overlay}
        self._overlay = {key: value for key, value in whole.items() if value is not None}
        self._state = None
        assert len(self._overlay) == self.entries, (
            "a pin holds what was there at the cut (primary_backup/C-5)"
        )
        return False

    def release(self) -> None:
        """It is over: nothing is kept for it any more."""
        state, self._state = self._state, None
        self._overlay = {}
        if state is not None:
            state.unobserve(self)

    def content(self) -> Mapping[bytes, bytes]:
        """All entries at the cut. Not to be changed, and of use until the member does something else."""
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
        """The value of a key at the cut; None: it was not there."""
        state = self._state
        if state is None:
            return self._overlay.get(key)
        state.fold()
        return self._overlay[key] if key in self._overlay else state.entries.get(key)

    @property
    def changed(self) -> int:
        """How many keys it remembers by itself."""
        return len(self._overlay)


@dataclass(slots=True)
class _Kept:
    """One cut on this member."""

    lease_ms: int
    until_ns: int
    pins: dict[int, dict[str, Pin]] = field(default_factory=dict)
    """By partition and map."""
    maps: frozenset[str] | None = None
    """What a client asked this member to cut; None: others have begun it."""

    def every(self) -> list[Pin]:
        """All pins."""
        return [pin for pins in self.pins.values() for pin in pins.values()]

    def told(self, partition: int, names: Sequence[str]) -> list[Pin] | None:
        """What was made known of this cut through this partition; None: nothing, or not all of it is kept as it was."""
        there = self.pins.get(partition)
        if not there or not all(pin.known for pin in there.values()):
            return None
        return [there[name] for name in names if name in there]


@dataclass(slots=True)
class Taken:
    """What has become of a cut through some partitions."""

    pins: list[Pin] = field(default_factory=list)
    unwritten: list[tuple[int, str]] = field(default_factory=list)
    """Partitions, and maps of which nothing was ever written there: nothing is kept."""
    moved: list[int] = field(default_factory=list)
    """Partitions that are not served here, or have changed hands meanwhile."""
    left: list[int] = field(default_factory=list)
    """Partitions that were not gone through, because it was enough work: to be asked for again."""
    known: bool = True
    why: str = ""
    """Why it is not known whether all sync backups keep it."""


class _Named(NamedTuple):
    """The cut of one partition that is not known yet."""

    copy: PartitionCopy
    version: int
    """Of the row that named the holders."""
    pins: list[Pin]


class Cuts:
    """The cuts that this member keeps, as primary or backup."""

    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: Sequence[Assignment],
        lane: Lane | None = None,
    ) -> None:
        """`lane`: of this member; without one it makes no cut known as primary."""
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
        """Whether this member begins no other cut now."""
        return sum(kept.maps is not None for kept in self._kept.values()) >= CUTS_MAX

    def keeps(self, cut: bytes) -> bool:
        """Whether anything is kept here for this cut."""
        return cut in self._kept

    def begun(self, cut: bytes) -> frozenset[str] | None:
        """The maps of this cut, if a client has asked this member for it; None if it was not asked."""
        kept = self._kept.get(cut)
        return None if kept is None else kept.maps

    def take(
        self,
        cut: bytes,
        maps: Sequence[str],
        partitions: Sequence[int],
        lease_ms: int,
        done: Callable[[Taken], None],
        *,
        passive: bool = False,
    ) -> None:
        """Keep these maps as they are now, here and on the backups, in those of these partitions that are served here.

        `done` is called once, when all sync backups keep them or when that cannot be known. What this member has made
        known for the same cut before stays as it was; a cut has the same maps whenever it is asked for. `passive`:
        nothing may be changed, so nobody but this member keeps it.
        """
        lane, taken = self.lane, Taken()
        named: list[_Named] = []
        serving = lane.leading if passive else lane.serving
        looked_at, may_end = 0, ENDED_MAX
        wanted = list(dict.fromkeys(partitions))
        names = list(dict.fromkeys(maps))
        for at, partition in enumerate(wanted):
            copy = serving[partition]
            if copy is None:
                taken.moved.append(partition)
                continue
            kept = self._begin(cut, names, lease_ms)
            pins = kept.told(partition, names)
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
                pins = self._pin_all(kept, cut, copy, written, lease_ms, passive=passive)
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

    def _when_kept(self, told: Completion) -> None:
        """Call this when all sync backups keep what was pinned just now, or when nobody can say so."""
        self.lane.close_batch(told)

    def _begin(self, cut: bytes, names: Sequence[str], lease_ms: int) -> _Kept:
        kept = self._open(cut, lease_ms)
        if kept.maps is None:
            kept.maps = frozenset(names)
        assert cut in self._kept, "what is begun is kept until its lease ends"
        return kept

    def _remove_ended(self, copy: PartitionCopy, written: Sequence[MapReplica], may_end: int) -> int:
        """Take out what has ended (primary_backup/C-4), looking at no more than `may_end` entries; answers how many
        more may be looked at, 0 when it was too much for now.
        """
        for held in written:
            may_end -= self.lane.expire(copy, held, may_end)
            assert may_end >= 0, "no more are looked at than may"
            if not may_end or held.state.may_end(self._out.now_ns):
                return 0
        return may_end

    def _pin_all(
        self,
        kept: _Kept,
        cut: bytes,
        copy: PartitionCopy,
        written: Sequence[MapReplica],
        lease_ms: int,
        *,
        passive: bool,
    ) -> list[Pin]:
        """All maps of the partition anew, at this moment (primary_backup/C-6)."""
        for before in kept.pins.pop(copy.partition, {}).values():
            before.release()
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
        """All have acknowledged: who was named as a holder is one, if the row is still the same
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
            "maps of a partition are made known together (primary_backup/C-6)"
        )
        if void:
            taken.pins = [pin for pin in taken.pins if pin.partition not in void]
            taken.unwritten = [one for one in taken.unwritten if one[0] not in void]
            taken.moved += sorted(void)

    def not_kept(self, sender: MemberId, unkept: Sequence[tuple[int, str, bytes, int]]) -> None:
        """This backup holds the records of these cuts, but keeps no pins: they are void, if it was to be a holder."""
        for partition, name, cut, counter in unkept:
            pin = self._pin(cut, partition, name)
            if pin is not None and pin.counter == counter and sender in pin.holders:
                pin.refused = True

    # -- primary and backup

    def has(self, partition: int, record: Record) -> bool:
        """Whether the pin that this record asks for is kept here."""
        pin = self._pin(record.key, partition, record.map)
        return pin is not None and pin.counter == record.counter

    def keep(self, cut: bytes, partition: int, held: MapReplica, lease_ms: int) -> Pin:
        """Keep what the map holds here now; instead of what was kept for the same cut before."""
        there = self._open(cut, lease_ms).pins.setdefault(partition, {})
        before = there.pop(held.name, None)
        if before is not None:
            before.release()
        assert held.name not in there, "a cut has one pin of a map in a partition"
        pin = there[held.name] = Pin(partition, held, self._out.now_ns)
        return pin

    def _open(self, cut: bytes, lease_ms: int) -> _Kept:
        """This cut, with its lease renewed."""
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
        """What is kept here of a map in a partition, None if nothing is; renews the lease."""
        kept = self._kept.get(cut)
        if kept is None:
            return None
        self._renew(kept)
        return kept.pins.get(partition, {}).get(name)

    def kept(self, cut: bytes, partitions: Sequence[int], limit: int) -> list[Pin]:
        """What is kept of the cut in these partitions: at most so many pins."""
        kept = self._kept.get(cut)
        if kept is None:
            return []
        found = (pin for each in dict.fromkeys(partitions) for pin in kept.pins.get(each, {}).values())
        return list(islice(found, limit))

    def hold(self, cut: bytes, lease_ms: int) -> int:
        """Keep the cut for so long from now on; 0: forget it. Answers of how many maps in partitions it is."""
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
        assert kept.lease_ms > 0, "what is kept has a lease"
        kept.until_ns = self._out.now_ns + kept.lease_ms * MILLISECOND

    def _end(self, cut: bytes) -> None:
        for pin in self._kept.pop(cut).every():
            pin.release()

    def sweep(self) -> None:
        """Forget cuts whose lease is over."""
        now_ns = self._out.now_ns
        for cut in [cut for cut, kept in self._kept.items() if kept.until_ns <= now_ns]:
            self._end(cut)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def pins(self) -> int:
        """How many maps in partitions are kept, of all cuts together."""
        return sum(len(kept.every()) for kept in self._kept.values())

    @property
    def changed(self) -> int:
        """How many former values are kept for them."""
        return sum(pin.changed for kept in self._kept.values() for pin in kept.every())
