"""An order about zones from its reading to its answer: races that are lost, members that are silent, a metastore that
does not answer. The stories on whole members are in `tests/lab/sim/test_zone_orders.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.core.zones.small_metastore import SmallMetastore

from holdfast.actions.change_zone import AlterZone, CreateZone, DropZone, RenameZone, ResetZone
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.show_zones import ListZones, ShowZone
from holdfast.config import Settings
from holdfast.core.effects import Complete, Send
from holdfast.core.messages import ZoneStates, ZoneStatesAsked
from holdfast.core.metastore.invoke import Leaf, MetastoreEntry, PutKey
from holdfast.core.model.ids import MemberId, group_of
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.views import MemberInfo
from holdfast.core.model.zone_answers import ZoneChanged
from holdfast.core.outbox import Outbox, Reply
from holdfast.core.zones.descriptors import ClusterTopology, DataMember, PlacementKind
from holdfast.core.zones.zone_keys import IDS_KEY, TOPOLOGY_KEY, decoded, encoded, zone_key
from holdfast.core.zones.zone_orders import MEMBERS_NS, STATES_NS, TRIES, ZoneOrders
from holdfast.core.zones.zone_resets import RecoveryRequest
from holdfast.core.zones.zone_view import ZoneView
from holdfast.errors import NotReady, Refused

A, B, C = (MemberId(name) for name in ("aaaaaaaa", "bbbbbbbb", "cccccccc"))


class Store(SmallMetastore):
    """The metastore of one member, answering when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, Any, Any]] = []
        self.tickets = 0

    @property
    def keyspace(self) -> Store:
        return self

    def scan(self, prefix: bytes) -> list[MetastoreEntry]:  # type: ignore[override]
        return [
            entry for key, entry in sorted(self.entries.items()) if key.startswith(prefix) and entry.exists
        ]

    def read(self, keys: Any, asker: Any) -> int:  # type: ignore[override]
        return self._ask(asker, None)

    def invoke(self, branch: Any, asker: Any) -> int:  # type: ignore[override]
        return self._ask(asker, branch)

    def _ask(self, asker: Any, branch: Any) -> int:
        self.tickets += 1
        self.asked.append((self.tickets, asker, branch))
        return self.tickets

    def put(self, key: bytes, value: object) -> None:
        super().invoke(Leaf((PutKey(key, encoded(value)),), 1))

    def answer(self) -> bool:
        """Answer what was asked first; whether that was an invoke."""
        ticket, asker, branch = self.asked.pop(0)
        if branch is None:
            asker.on_read(ticket, [], self.revision)
        else:
            asker.on_invoked(ticket, super().invoke(branch))
        return branch is not None


class Stage:
    """Orders of one member among three, and the metastore that they go to."""

    def __init__(self) -> None:
        self.store = Store()
        self.out = Outbox()
        self.members = {
            uuid: MemberInfo(uuid, 1, "h", 5701, "h", 5702, f"m{number}")
            for number, uuid in enumerate((A, B, C))
        }
        self.installed = SimpleNamespace(number=3, maps=MapChanges())
        standing: Any = SimpleNamespace(
            members=lambda: list(self.members.values()), member=self.members.get, view=self.installed
        )
        self.leaders: dict[int, tuple[int, MemberId]] = {}
        routing: Any = SimpleNamespace(leader=self.leaders.get)
        groups: Any = SimpleNamespace(hosted={})
        metastore: Any = self.store
        view = ZoneView(standing, metastore, groups, routing)
        self.orders = ZoneOrders(Settings(), self.out, standing, metastore, view)
        self.view = view
        topology = ClusterTopology(3, tuple(DataMember(uuid) for uuid in (A, B, C)))
        self.store.put(TOPOLOGY_KEY, topology)

    def advised(self, reply: Reply) -> Reply:
        """As the host of the metastore does."""
        return reply

    @property
    def zone_orders(self) -> ZoneOrders:
        return self.orders

    def give(self, action: OperatorAction) -> None:
        member: Any = SimpleNamespace(agreed=self)
        action.apply(member, Reply(self.out, 7))

    def answers(self) -> list[Any]:
        done = [effect for effect in self.out.effects if isinstance(effect, Complete)]
        self.out.effects = [effect for effect in self.out.effects if not isinstance(effect, Complete)]
        return [effect.answer for effect in done]

    def ask(self, order: OperatorAction) -> Any:
        self.give(order)
        while self.store.asked:
            self.store.answer()
        [answer] = self.answers()
        assert self.orders.leftovers == {"orders about zones": 0}
        return answer


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.rule("zones/Z-5")
def test_a_race_that_is_lost_is_read_again(stage: Stage) -> None:
    stage.give(CreateZone("z", partitions=3))
    assert not stage.store.answer()
    stage.store.put(IDS_KEY, 4)  # Somebody else has just created a zone.
    assert stage.store.answer()
    assert stage.answers() == []
    while stage.store.asked:
        stage.store.answer()
    [answer] = stage.answers()
    assert answer == ZoneChanged(3, 1)
    assert [zone.id for zone in stage.view.zones()] == [5]


@pytest.mark.rule("zones/Z-5")
def test_who_always_loses_is_told_that_nothing_was_done(stage: Stage) -> None:
    stage.give(CreateZone("z"))
    for number in range(TRIES):
        stage.store.answer()
        stage.store.put(IDS_KEY, number)
        stage.store.answer()
    [answer] = stage.answers()
    assert isinstance(answer, NotReady)
    assert "nothing was done" in str(answer)
    assert list(stage.view.zones()) == []
    assert not stage.store.asked


def test_what_cannot_be_is_refused_before_anything_is_written(stage: Stage) -> None:
    revision = stage.store.revision
    for order in (
        CreateZone("z", filter="rack=9"),
        AlterZone("z"),
        RenameZone("z", "y"),
        DropZone("z"),
    ):
        assert type(stage.ask(order)) is Refused
    assert stage.store.revision == revision


@pytest.mark.rule("zones/Z-6")
def test_a_zone_waits_until_its_metastore_knows_who_is_here(stage: Stage) -> None:
    """A cluster that has just formed: operators see members that the metastore does not know yet."""
    stage.ask(CreateZone("x"))
    stage.installed.number = 4
    for order in (CreateZone("z", filter="rack=9"), AlterZone("x", filter="rack=9"), ResetZone("x")):
        stage.give(order)
        stage.store.answer()
        assert (stage.answers(), stage.store.asked) == ([], [])
        stage.orders.sweep()
        while stage.store.asked:
            stage.store.answer()
    assert stage.orders.leftovers == {"orders about zones": 3}
    racks = (*(DataMember(uuid) for uuid in (A, B)), DataMember(C, attributes={"rack": "9"}))
    stage.store.put(TOPOLOGY_KEY, ClusterTopology(4, racks))
    stage.orders.sweep()
    while stage.store.asked:
        stage.store.answer()
    answers = stage.answers()
    assert (answers.count(ZoneChanged(271, 1)), answers.count(None)) == (2, 1)


@pytest.mark.rule("zones/Z-6")
def test_a_zone_does_not_wait_for_ever_for_who_is_here(stage: Stage) -> None:
    stage.installed.number = 4
    stage.give(CreateZone("z"))
    stage.store.answer()
    stage.out.now_ns += MEMBERS_NS
    stage.orders.sweep()
    [answer] = stage.answers()
    assert isinstance(answer, NotReady)
    assert "nothing was done" in str(answer)
    assert stage.orders.leftovers == {"orders about zones": 0}


def test_a_zone_has_as_many_partitions_as_the_cluster_unless_told(stage: Stage) -> None:
    assert stage.ask(CreateZone("z")).warnings == []
    assert stage.view.zones()[0].settings.partitions == Settings().partitions.count
    most = Settings().partitions.count
    assert stage.ask(CreateZone("x", partitions=3)).warnings == []
    warned = stage.ask(CreateZone("y", partitions=most + 1, replicas=5))
    assert "3 members may hold its replicas" in warned.warnings[0]
    assert "no map can live in it" in warned.warnings[1]


def test_settings_are_told_as_they_are_given(stage: Stage) -> None:
    wanted = CreateZone("z", replicas=3, scale_down_s="never", scale_up_s=9)
    filtered = replace(wanted, filter="host=a|b, rack=r")
    assert isinstance(stage.ask(filtered), Refused)  # No member has a rack.
    assert isinstance(stage.ask(wanted), ZoneChanged)
    [zone] = stage.ask(ListZones()).zones
    assert {name: zone.settings[name] for name in ("replicas", "scale_down_s", "scale_up_s")} == {
        "replicas": 3,
        "scale_down_s": "never",
        "scale_up_s": 9,
    }
    stage.ask(AlterZone("z", scale_up_s="never", scale_down_s=0, placement=PlacementKind.EVEN))
    [zone] = stage.ask(ListZones()).zones
    chosen = (zone.settings["scale_up_s"], zone.settings["scale_down_s"], zone.settings["placement"])
    assert chosen == ("never", 0, "even")


def test_a_reset_is_asked_for_once_more_each_time(stage: Stage) -> None:
    stage.ask(CreateZone("z", partitions=5))
    key = zone_key(1, "recovery")
    assert stage.ask(ResetZone("z", [3, 1, 3])) is None
    assert "partitions 1, 3 without" in ResetZone("z", [3, 1, 3]).answer_text(None)
    first = stage.store.get(key)
    assert first.value is not None
    assert decoded(first.value, RecoveryRequest) == RecoveryRequest(manual=True, partitions=(1, 3))
    stage.ask(ResetZone("z", [1, 3]))
    assert stage.store.get(key).revision > first.revision


def test_who_shows_a_zone_waits_for_the_members_but_not_for_ever(stage: Stage) -> None:
    stage.ask(CreateZone("z", partitions=2, replicas=3))
    stage.leaders[group_of(1, 0)] = (4, B)
    stage.leaders[group_of(1, 1)] = (9, MemberId("gone"))
    stage.give(ShowZone("z"))
    stage.store.answer()
    asked = [
        one.to for one in stage.out.take() if isinstance(one, Send) and one.message == ZoneStatesAsked(1)
    ]
    assert asked == [A, B, C]
    stage.orders.on_states(A, ZoneStates(1, [(0, "HEALTHY", 5, False)]))
    stage.orders.on_states(A, ZoneStates(1, [(0, "HEALTHY", 6, False)]))
    stage.orders.on_states(B, ZoneStates(2, [(0, "HEALTHY", 7, False)]))
    stage.orders.sweep()
    assert stage.answers() == []
    stage.out.now_ns += STATES_NS
    stage.orders.sweep()
    [answer] = stage.answers()
    first, second = answer.partitions
    assert (first.leader, first.term, [(one.node, one.index) for one in first.replicas]) == (B, 4, [(A, 5)])
    assert (second.leader, second.replicas) == (None, [])
    assert answer.members == {A: "m0", B: "m1", C: "m2"}
    assert answer.zone.leaderless == 1


def test_a_metastore_that_does_not_answer_is_told(stage: Stage) -> None:
    stage.give(DropZone("z"))
    stage.orders.on_failed(1, NotReady("nobody leads it"))
    [answer] = stage.answers()
    assert (type(answer), str(answer)) == (NotReady, "nobody leads it")
    assert stage.orders.leftovers == {"orders about zones": 0}


def test_a_zone_that_lacks_something_is_named(stage: Stage) -> None:
    stage.ask(CreateZone("z", partitions=2, replicas=3))
    assert stage.view.unsafe_reason() == "zone z: 2 of 2 partitions have no leader"
    stage.leaders |= {group_of(1, 0): (1, A), group_of(1, 1): (1, B)}
    assert stage.view.unsafe_reason() == ""
    del stage.members[C]
    assert stage.view.unsafe_reason() == (
        "zone z: 2 of 2 partitions have a replica on an absent member; other members replace it after 300 s "
        "(scale_down_s), and a new member with its name and address at once"
    )
    stage.ask(AlterZone("z", scale_down_s="never"))
    assert stage.view.unsafe_reason() == (
        "zone z: 2 of 2 partitions have a replica on an absent member. Start it again at the same address, or let "
        "other members replace it: holdfast zone alter z --scale-down-s 60"
    )
    assert stage.view.recovery_advice() == ""
