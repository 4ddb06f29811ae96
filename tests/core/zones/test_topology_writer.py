"""The leader of the metastore's group keeps the members of the cluster in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.metastore.invoke import If, Invoked, Leaf, MetastoreEntry, PutKey
from holdfast.core.model.ids import METASTORE_GROUP, MemberId
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.zones.assignments import Node
from holdfast.core.zones.descriptors import ClusterTopology, DataMember, DataNodesEntry, MemberPlace
from holdfast.core.zones.topology_writer import TopologyWriter
from holdfast.core.zones.zone_keys import PLACES_KEY, TOPOLOGY_KEY, KeysRead, encoded, zone_key
from holdfast.errors import NotReady

A, B = (MemberInfo(MemberId(name), 1, "h", port, "h", port, name) for port, name in ((1, "a"), (2, "b")))


@dataclass
class Stage:
    """A member in view 7, with what its metastore was asked for."""

    reads: int = 0
    written: list[ClusterTopology] = field(default_factory=list)
    places: dict[Node, MemberPlace] = field(default_factory=dict)
    """As last written."""
    awaited: tuple[Node, ...] = ()
    """Data nodes of zone 1."""
    term: int | None = 3
    status: Any = None

    def __post_init__(self) -> None:
        self.status = SimpleNamespace(view=View(7, "c", [A, B]), departing=set())
        groups = SimpleNamespace(term=lambda number: self.term if number == METASTORE_GROUP else None)
        self.writer = TopologyWriter(self.status, self, groups)  # type: ignore[arg-type]

    def read(self, keys: list[bytes], asker: object) -> int:
        assert (keys, asker) == ([TOPOLOGY_KEY, PLACES_KEY], self.writer)
        self.reads += 1
        return self.reads

    def invoke(self, branch: If, asker: object) -> int:
        assert asker is self.writer
        assert isinstance(branch.then, Leaf)
        for put in branch.then.changes:
            assert isinstance(put, PutKey)
            read = KeysRead([MetastoreEntry(put.key, put.value, 9)], 9)
            if put.key == PLACES_KEY:
                self.places = read.value(PLACES_KEY, dict[Node, MemberPlace]) or {}
            else:
                found = read.value(TOPOLOGY_KEY, ClusterTopology)
                assert found is not None
                self.written.append(found)
        return 99

    def scan(self, prefix: bytes) -> list[MetastoreEntry]:
        history = (DataNodesEntry(1, self.awaited),)
        return [MetastoreEntry(zone_key(1, "history"), encoded(history), 4)]

    def answer(self, known: ClusterTopology | None) -> None:
        entries = [(TOPOLOGY_KEY, known), (PLACES_KEY, self.places)]
        self.writer.on_read(
            self.reads,
            [MetastoreEntry(key, None if value is None else encoded(value), 5) for key, value in entries],
            5,
        )


def topology(number: int, *leaving: str) -> ClusterTopology:
    members = tuple(DataMember(info.name, info.group, info.described()) for info in (A, B))
    return ClusterTopology(number, members, leaving)


@pytest.mark.rule("zones/Z-1")
def test_the_leader_writes_a_view_and_never_an_older_one() -> None:
    stage = Stage()
    stage.writer.on_members()
    assert stage.reads == 0, "it does not lead"
    stage.writer.on_leading(3)
    assert (stage.reads, stage.writer.leads) == (1, True)
    stage.answer(topology(8))
    assert stage.written == [], "8 is newer"
    for known in (None, topology(6)):
        stage.writer.on_members()
        stage.answer(known)
        assert stage.written.pop() == topology(7)
        stage.writer.on_invoked(99, Invoked(1, 6))
    stage.writer.on_members()
    stage.answer(topology(7))
    assert stage.written == [], "it is there already"
    stage.status.departing = {B.uuid}
    stage.writer.on_members()
    stage.answer(topology(7))
    assert stage.written == [topology(7, "b")]


@pytest.mark.rule("zones/Z-1")
def test_who_ceased_to_lead_writes_nothing() -> None:
    stage = Stage()
    stage.writer.on_leading(3)
    stage.term = None
    stage.answer(None)
    assert (stage.written, stage.writer.leads) == ([], False)
    stage.term = 4
    stage.writer.on_leading(None)
    assert (stage.reads, stage.writer.leads) == (1, False)


def test_one_request_at_a_time_and_again_when_it_was_in_vain() -> None:
    stage = Stage()
    stage.writer.on_leading(3)
    stage.writer.on_members()
    assert stage.reads == 1
    stage.writer.on_failed(1, NotReady("no leader"))
    assert stage.reads == 2
    stage.answer(None)
    stage.writer.on_members()
    assert stage.reads == 2, "the invoke is pending"
    stage.writer.on_invoked(99, Invoked(1, 6))
    assert stage.reads == 3, "the members have changed since"
    stage.answer(None)
    stage.writer.on_invoked(99, Invoked(0, 6))
    assert stage.reads == 4, "the condition failed"
    stage.answer(None)
    stage.writer.on_invoked(99, Invoked(1, 7))
    assert stage.reads == 4


@pytest.mark.rule("zones/A-28")
def test_the_place_of_a_member_that_has_gone_is_kept_while_a_zone_waits_for_it() -> None:
    stage = Stage(awaited=("a", "b"))
    stage.writer.on_leading(3)
    stage.answer(None)
    both = {"a": MemberPlace("a", "h:1"), "b": MemberPlace("b", "h:2")}
    assert stage.places == both
    stage.writer.on_invoked(99, Invoked(1, 6))
    stage.status.view = View(8, "c", [A])
    stage.writer.on_members()
    stage.answer(topology(7))
    assert [member.node for member in stage.written[-1].members] == ["a"]
    assert stage.places == both
    stage.awaited = ("a",)
    stage.status.view = View(9, "c", [A])
    stage.writer.on_invoked(99, Invoked(1, 7))
    stage.writer.on_members()
    stage.answer(topology(7))
    assert stage.places == {"a": both["a"]}


def test_a_metastore_of_an_older_build_gets_the_places_of_its_members() -> None:
    stage = Stage()
    stage.writer.on_leading(3)
    stage.answer(topology(7))
    assert (stage.written, set(stage.places)) == ([], {"a", "b"})
