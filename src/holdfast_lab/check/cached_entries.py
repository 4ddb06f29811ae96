"""Near caches: a client that keeps what it has read forgets it when it changes.

Two things are judged. The numbers of a partition's invalidations rise, so that a client can detect a lost one: after
number 7 comes 8, and never 7 again. (9 may come, too, when the update 8 was a cut, which changes no entry. The client
then forgets the partition although it has missed nothing.) And an entry that is still kept when the cluster is at rest
is the value of the map: a client that missed an invalidation would otherwise answer the old value for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry of a near cache, with the names of key and value."""

    key: str
    value: str
    since: int
    """When it was read, in nanoseconds."""


@dataclass(slots=True)
class Numbering:
    """Checks the numbers of one registration on one member."""

    name: str
    """The client and the member, for messages."""
    problems: list[str] = field(default_factory=list)
    _last: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """By partition: history and number of the last invalidation."""

    def on_invalidation(self, partition: int, history: bytes, number: int) -> None:
        """A key of this partition has changed."""
        last = self._last.get(partition)
        self._last[partition] = (history, number)
        if last is not None and last[0] == history and number <= last[1]:
            self.problems.append(
                f"near cache {self.name}: partition {partition}: invalidation {number} follows {last[1]}"
            )

    def on_clear(self) -> None:
        """All keys have changed: each partition has counted that, and the message has none of these numbers."""
        self._last.clear()


def judge_kept(name: str, kept: Iterable[Kept], final: Mapping[str, str | None]) -> list[str]:
    """Entries that differ from what the map holds at rest, in words. `final`: the value of each key that was read."""
    return [
        f"near cache {name}: {one.key} is {one.value} for ever, read at {one.since / 1e9:.6f} s; "
        f"the map has {final[one.key]}"
        for one in kept
        if one.key in final and final[one.key] != one.value
    ]
