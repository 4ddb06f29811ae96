"""Judge of near caches: a client forgets a cached entry when it changes.

The numbers of a partition's invalidations must rise, so that a client can detect a lost one: after number 7
comes 8, and never 7 again. (9 may come if update 8 was a cut, which changes no entry; the client then forgets
the partition without need.) And an entry that is still cached at rest must be the map's value: a client that
missed an invalidation would return the old value for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Kept:
    key: str
    value: str
    since: int
    """When it was read, in nanoseconds."""


@dataclass(slots=True)
class Numbering:
    name: str
    problems: list[str] = field(default_factory=list)
    _last: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def on_invalidation(self, partition: int, history: bytes, number: int) -> None:
        last = self._last.get(partition)
        self._last[partition] = (history, number)
        if last is not None and last[0] == history and number <= last[1]:
            self.problems.append(
                f"near cache {self.name}: partition {partition}: invalidation {number} follows {last[1]}"
            )

    def on_clear(self) -> None:
        """Each partition has counted the clear; the message has none of the numbers."""
        self._last.clear()


def judge_kept(name: str, kept: Iterable[Kept], final: Mapping[str, str | None]) -> list[str]:
    return [
        f"near cache {name}: {one.key} is {one.value} for ever, read at {one.since / 1e9:.6f} s; "
        f"the map has {final[one.key]}"
        for one in kept
        if one.key in final and final[one.key] != one.value
    ]
