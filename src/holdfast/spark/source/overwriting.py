"""Overwriting a map: its old contents are kept as a cut until the job ends, for tasks that read the same map.

Spark clears the map before it computes the rows, and a data source cannot find out where they come from:
perhaps from the same map, as in `spark.read…load("m").write.mode("overwrite")…save("m")`. So the map is cut
before it is cleared, and a note in the grid names the cut. A task whose read was planned before the note reads
the cut; others read the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, take_cut
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.errors import HoldfastError
from holdfast.spark.rows.stored import json_data, string_data
from holdfast.wire.own import Mark

OVERWRITES_MAP = "__overwrites.spark"
"""Map name -> `Note` as JSON, while a job overwrites the map."""
_HEAD_BYTES = 8


class Note(msgspec.Struct, frozen=True):
    cut: bytes
    lease_s: float
    marks: list[Mark]

    def part(self, map_name: str, partitions: Sequence[int]) -> Cut:
        wanted = set(partitions)
        marks = {(map_name, mark.partition): mark for mark in self.marks if mark.partition in wanted}
        return Cut(self.cut, marks, self.lease_s)


def clear_for_overwriting(client: Client, map_name: str, lease_s: float) -> Cut | None:
    """Clear a map; its old contents stay readable as a cut until `end_overwriting`.

    Returns the cut; None if the map was empty. `lease_s`: how long the cut is kept after its last use if it is
    not ended. Raises NotReady, and clears nothing, if the map cannot be cut.
    """
    if client.size(map_name) == 0:
        client.clear(map_name)
        return None
    cut = take_cut(client, [map_name], lease_s=lease_s)
    note = Note(cut.id, cut.lease_s, list(cut.marks.values()))
    try:
        client.set(OVERWRITES_MAP, string_data(map_name), json_data(msgspec.json.encode(note)), ttl_ms=0)
        client.clear(map_name)
    except HoldfastError:
        end_overwriting(client, map_name, cut)
        raise
    return cut


def end_overwriting(client: Client, map_name: str, cut: Cut | None) -> None:
    if cut is None:
        return
    with suppress(HoldfastError):
        if overwriting(client, map_name) == cut.id:
            key = string_data(map_name)
            partitions = [partition_of(key, 0, client.partition_count)]
            client.execute(Request(Op.DELETE, OVERWRITES_MAP, partitions, key), idempotent=True)
    end_cut(client, cut)


def overwriting(client: Client, map_name: str) -> bytes:
    """The job that overwrites the map now, as the id of its cut; empty if there is none."""
    note = _note(client, map_name)
    return b"" if note is None else note.cut


def cut_before(client: Client, map_name: str, planned: bytes, partitions: Sequence[int]) -> Cut | None:
    """The cut at which a task must read these partitions; None if it reads the map itself.

    `planned`: the job that was overwriting the map when the read was planned.
    """
    note = _note(client, map_name)
    if note is None or note.cut == planned:
        return None
    return note.part(map_name, partitions)


def _note(client: Client, map_name: str) -> Note | None:
    found = client.get(OVERWRITES_MAP, string_data(map_name))
    return None if found is None else msgspec.json.decode(found[_HEAD_BYTES:], type=Note)
