"""Compares every replica with its owner by their digests, without Spark: for tests and for the chaos runs."""

from __future__ import annotations

from holdfast.client.blocking import Client
from holdfast.wire.own import MapDigest, PartitionDigest


def diverged(address: str) -> list[str]:
    """What differs, in words; empty when every replica in the table equals its owner. For a cluster at rest."""
    with Client(address) as client:
        table = client.table()
        partitions = list(range(len(table)))
        held = {
            member.uuid: {row.partition: row for row in client.digests(member.uuid, partitions)}
            for member in table.data_members
        }
    found: list[str] = []
    for row in table:
        owner, *backups = row.replicas
        if owner is None:
            found.append(f"partition {row.partition} has no owner")
            continue
        mine = _content(held[owner].get(row.partition))
        for index, backup in enumerate(backups, start=1):
            if backup is None:
                continue
            theirs = _content(held[backup].get(row.partition))
            for name in sorted(mine.keys() | theirs.keys()):
                if mine.get(name) != theirs.get(name):
                    found.append(
                        f"partition {row.partition}, map {name}: replica {index} has {_words(theirs.get(name))}, "
                        f"its owner {_words(mine.get(name))}"
                    )
    return found


def _content(copy: PartitionDigest | None) -> dict[str, tuple[int, int, int]]:
    """Counter, number of entries and digest of each map that was ever written here."""
    maps: list[MapDigest] = copy.maps if copy is not None else []
    return {row.map: (row.counter, row.entries, row.digest) for row in maps if row.counter}


def _words(content: tuple[int, int, int] | None) -> str:
    if content is None:
        return "nothing"
    counter, entries, digest = content
    return f"{entries} entries (counter {counter}, digest {digest:016x})"
