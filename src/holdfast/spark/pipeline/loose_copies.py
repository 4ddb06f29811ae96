"""Copies of one map in one partition of which none leads: from directories, or from members that somebody has listed.

Copies with the same updates must hold the same entries, whatever happened. One with fewer updates stopped earlier, or
has not heard of the last ones yet: it is older, and nothing is wrong with it. Running members are asked again until
their copies have stood at one update.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from holdfast.core.store.digest import entry_digest
from holdfast.wire.values import Serialized, from_stored

Standing = Literal["equal", "older", "differs", "behind", "uncertain"]
"""`behind`: of a running member, and at no look did it stand at the update at which the newest copy stood, so that the
two were never compared. `uncertain`: the copy differs, and its files are known not to tell everything."""

LOOKS_STILL = 3
"""Copies that stand still at different updates for so many looks in a row need no further one."""
LOOKS_MAX = 12

TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class Held:
    """What somebody holds of one map in one partition."""

    where: str
    partition: int
    map: str
    epoch: int
    """Which life of the partition: one that was declared lost and began anew has a higher one."""
    counter: int
    lineage: tuple[tuple[int, int], ...]
    """Of which terms the updates are: from the counter start + 1 on, of this term; ascending."""
    entries: int
    digest: int
    doubt: str = ""
    """Why this may not be everything; empty when it is."""

    @property
    def term(self) -> int:
        """Of the last update; 0 when there was none."""
        return self.term_of(self.counter)

    def term_of(self, counter: int) -> int:
        """The term of this update; 0 when the lineage does not tell."""
        for term, start in reversed(self.lineage):
            if start < counter:
                return term
        return 0


@dataclass(frozen=True, slots=True)
class CopyFinding:
    """One copy against the newest one, the reference."""

    partition: int
    map: str
    where: str
    verdict: Standing
    why: str
    epoch: int
    counter: int
    term: int
    entries: int
    digest: str
    """16 hexadecimal digits."""
    reference: str
    """Who has the newest copy."""
    reference_epoch: int
    reference_counter: int
    reference_term: int
    reference_entries: int
    reference_digest: str


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """What one copy holds of a key that not all copies hold with the same value."""

    partition: int
    map: str
    key: bytes
    """In its stored form."""
    text: str
    """As its writer knows it, if it is of a common type."""
    where: str
    held: bool
    value_bytes: int
    """0 if there is no value."""
    digest: str
    """Of key and value, 16 hexadecimal digits; empty if there is none."""


def compare_copies(copies: Sequence[Held]) -> list[CopyFinding]:
    """Compare all copies of one map in one partition with the newest of them."""
    held = [copy for copy in copies if copy.counter or copy.entries]
    if len(held) < 2:
        return []
    votes = Counter((_place(copy), copy.entries, copy.digest) for copy in held)
    # Of equally new copies the one that most others agree with: found are those that are alone with what they hold.
    newest = max(
        held, key=lambda copy: (_place(copy), not copy.doubt, votes[_place(copy), copy.entries, copy.digest])
    )
    return [_compare(newest, copy) for copy in held if copy is not newest]


def _place(copy: Held) -> tuple[int, int, int]:
    return copy.epoch, copy.term, copy.counter


def _compare(newest: Held, copy: Held) -> CopyFinding:
    verdict, why = _judge(newest, copy)
    return CopyFinding(
        copy.partition,
        copy.map,
        copy.where,
        verdict,
        why,
        copy.epoch,
        copy.counter,
        copy.term,
        copy.entries,
        f"{copy.digest:016x}",
        newest.where,
        newest.epoch,
        newest.counter,
        newest.term,
        newest.entries,
        f"{newest.digest:016x}",
    )


def _judge(newest: Held, copy: Held) -> tuple[Standing, str]:
    if _place(newest) == _place(copy):
        if (newest.entries, newest.digest) == (copy.entries, copy.digest):
            return "equal", ""
        if newest.doubt or copy.doubt:
            return "uncertain", copy.doubt or f"{newest.where}: {newest.doubt}"
        return "differs", "the same updates, other entries"
    if newest.epoch != copy.epoch:
        return "older", f"of an earlier life of the partition, {copy.epoch} instead of {newest.epoch}"
    common = newest.term_of(copy.counter)
    if copy.counter > newest.counter or (common and copy.term and common != copy.term):
        return "older", f"its last updates are of term {copy.term}, which others did not take over"
    behind = newest.counter - copy.counter
    return "older", f"{behind} updates behind" + (f" ({copy.doubt})" if copy.doubt else "")


class Looks:
    """What looks at the copies of one map in one partition have shown, while their members run and write.

    Copies at one update must hold the same entries at whatever look; copies at different ones are looked at again.
    """

    def __init__(self) -> None:
        self._last: list[CopyFinding] = []
        self._decided: dict[str, CopyFinding] = {}
        """Whose copy was compared -> how, at the last look at which it was."""
        self._compared: set[str] = set()
        """Who stood at one update with another, at some look."""
        self._wrong: dict[str, int] = {}
        self._places: dict[str, tuple[int, int, int]] = {}
        self._still = 0
        self._looks = 0

    def hear(self, held: Sequence[Held]) -> bool:
        """Take what a look has shown; answers whether no further look is needed."""
        self._looks += 1
        places = {copy.where: _place(copy) for copy in held}
        self._still = self._still + 1 if places == self._places else 1
        self._places = places
        self._last = compare_copies(held)
        for finding in self._last:
            if finding.verdict == "older":
                continue
            self._decided[finding.where] = finding
            self._compared |= {finding.where, finding.reference}
            if finding.verdict == "differs":
                self._wrong[finding.where] = self._wrong.get(finding.where, 0) + 1
        return self._looks >= LOOKS_MAX or self._still >= LOOKS_STILL or all(map(self._firm, self._last))

    def _firm(self, finding: CopyFinding) -> bool:
        decided = self._decided.get(finding.where)
        if decided is not None and decided.verdict == "differs":
            return self._wrong[finding.where] > 1
        return finding.where in self._compared

    def findings(self) -> list[CopyFinding]:
        """How each copy stands to the newest one; those that were never compared are behind."""
        behind = [
            replace(finding, verdict="behind", why=f"{finding.why}, at {self._looks} looks")
            for finding in self._last
            if finding.where not in self._compared
        ]
        return [*self._decided.values(), *behind]


def differing_keys(
    partition: int, name: str, held: Mapping[str, Mapping[bytes, bytes]], limit: int
) -> tuple[list[KeyFinding], int]:
    """What each holds of up to `limit` keys that not all hold with the same value; and how many such keys there are."""
    found: list[KeyFinding] = []
    count = 0
    for key in dict.fromkeys(key for entries in held.values() for key in entries):
        values = {where: entries.get(key) for where, entries in held.items()}
        if len(set(values.values())) > 1:
            count += 1
            if count <= limit:
                found += [key_finding(partition, name, key, where, value) for where, value in values.items()]
    return found, count


def key_finding(partition: int, name: str, key: bytes, where: str, value: bytes | None) -> KeyFinding:
    """What one copy holds of a key; None: nothing."""
    text = readable(key)
    if value is None:
        return KeyFinding(partition, name, key, text, where, False, 0, "")
    return KeyFinding(partition, name, key, text, where, True, len(value), f"{entry_digest(key, value):016x}")


def readable(key: bytes) -> str:
    """A key as its writer knows it, if it is of a common type; else its bytes."""
    try:
        value = from_stored(key)
    except (ValueError, IndexError, UnicodeDecodeError, RecursionError, msgspec.MsgspecError, struct.error):
        return f"0x{key.hex()}"[:TEXT_MAX]
    return (f"0x{key.hex()}" if isinstance(value, Serialized) else repr(value))[:TEXT_MAX]
