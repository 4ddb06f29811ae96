"""A map that is being overwritten: what it held is kept until the job is over, for whoever had planned to read it.

Spark clears the map before it computes the rows, and tells a data source nothing of where these come from: they may be
those of the same map. So the map is cut first, and the cut is noted in the grid under the name of the map. A task whose
read was planned before that note reads at the cut; all others read the map as it is.
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
"""Map name -> `Note` as JSON, while a job overwrites it."""
_HEAD_BYTES = 8
"""Of a stored JSON value: type id and length."""


class Note(msgspec.Struct, frozen=True):
    """The cut through a map that is being overwritten, from before it was cleared."""

    cut: bytes
    lease_s: float
    marks: list[Mark]

    def part(self, map_name: str, partitions: Sequence[int]) -> Cut:
        """What of the cut is about these partitions."""
        wanted = set(partitions)
        marks = {(map_name, mark.partition): mark for mark in self.marks if mark.partition in wanted}
        return Cut(self.cut, marks, self.lease_s)


def clear_for_overwriting(client: Client, map_name: str, lease_s: float) -> Cut | None:
    """Clear a map, and keep what it holds for those who are about to read it, until `end_overwriting`.

    Answers the cut; None when there was nothing to keep. `lease_s`: how long it is kept, after it was last read, should
    nobody end it. Raises NotReady, and clears nothing, when it cannot be cut.
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
    """The job is over: nobody needs any more what the map held before."""
    if cut is None:
        return
    with suppress(HoldfastError):
        if overwriting(client, map_name) == cut.id:
            key = string_data(map_name)
            partitions = [partition_of(key, 0, client.partition_count)]
            client.execute(Request(Op.DELETE, OVERWRITES_MAP, partitions, key), idempotent=True)
    end_cut(client, cut)


def overwriting(client: Client, map_name: str) -> bytes:
    """Which job overwrites the map now: the id of its cut; empty when none does."""
    note = _note(client, map_name)
    return b"" if note is None else note.cut


def cut_before(client: Client, map_name: str, planned: bytes, partitions: Sequence[int]) -> Cut | None:
    """The cut at which a task has to read these partitions; None when it reads the map as it is.

    `planned`: which job had overwritten the map when the read was planned.
    """
    note = _note(client, map_name)
    if note is None or note.cut == planned:
        return None
    return note.part(map_name, partitions)


def _note(client: Client, map_name: str) -> Note | None:
    found = client.get(OVERWRITES_MAP, string_data(map_name))
    return None if found is None else msgspec.json.decode(found[_HEAD_BYTES:], type=Note)
