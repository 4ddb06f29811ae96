"""A history of maps in memory, with the rules of a cluster's: for tests of change streams that need no members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.errors import ChangesGone
from holdfast.spark.source.member_changes import Change, Head
from holdfast.spark.source.offsets import At, Place
from holdfast.wire.answers import ChangeKind


class ToldHistory:
    """Every update of some maps; `since` says what is forgotten."""

    def __init__(self, partitions: int = 4, cluster: str = "c1") -> None:
        self.count = partitions
        self.id = cluster
        self.term = 1
        self.told: dict[At, list[Change]] = {}
        self.held: dict[At, dict[bytes, bytes]] = {}
        self.since: dict[At, int] = {}
        self.dumb: set[int] = set()
        """Partitions whose primary does not say how many entries there are."""

    def put(self, name: str, partition: int, key: str, value: str | None) -> None:
        at, now = (name, partition), self.held.setdefault((name, partition), {})
        told = self.told.setdefault(at, [])
        before, after = now.get(key.encode()), value.encode() if value is not None else None
        kind = (
            ChangeKind.REMOVE if after is None else ChangeKind.INSERT if before is None else ChangeKind.UPDATE
        )
        told.append(Change(len(told) + 1, self.term, kind, 1000 + len(told), key.encode(), before, after))
        if after is None:
            del now[key.encode()]
        else:
            now[key.encode()] = after

    def forget(self, name: str, partition: int, upto: int) -> None:
        self.since[name, partition] = upto

    # -- History

    def cluster(self) -> str:
        return self.id

    def partition_count(self) -> int:
        return self.count

    def heads(self, name: str) -> dict[int, Head]:
        found = {}
        for partition in range(self.count):
            told = self.told.get((name, partition), [])
            lineage: dict[int, int] = {}
            for change in told:
                lineage.setdefault(change.term, change.counter - 1)
            place = Place(told[-1].term, told[-1].counter) if told else Place()
            found[partition] = Head(place, self.since.get((name, partition), 0), tuple(lineage.items()))
        return found

    def sizes(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        return {
            partition: len(self.held.get((name, partition), {}))
            for partition in partitions
            if partition not in self.dumb
        }

    def changes(self, at: At, start: Place, end: Place) -> Iterator[Change]:
        if start.counter < self.since.get(at, 0):
            raise ChangesGone(*at, start.counter, end.counter, "forgotten")
        return iter(
            [change for change in self.told.get(at, []) if start.counter < change.counter <= end.counter]
        )

    def entries(self, at: At, place: Place) -> dict[bytes, bytes]:
        if place.counter < self.since.get(at, 0):
            raise ChangesGone(*at, place.counter, self.heads(at[0])[at[1]].place.counter, "forgotten")
        found: dict[bytes, bytes] = {}
        for change in self.told.get(at, [])[: place.counter]:
            if change.after is None:
                del found[change.key]
            else:
                found[change.key] = change.after
        return found
