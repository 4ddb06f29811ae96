"""What operators are told of zones, as simulated members do it: made from what the metastore and the members answer."""

from __future__ import annotations

from tests.lab.sim.test_zone_orders import ask, order
from tests.lab.sim.zone_stage import ZoneStage

from holdfast.actions.change_zone import AlterZone, CreateZone, DropZone, RenameZone, ResetZone
from holdfast.actions.metastore_keys import KeyChanges, ScanKeys
from holdfast.actions.show_zones import ShowLeaders
from holdfast.client.zone_events import ZoneEvent, ZoneEventKind, ZoneEvents
from holdfast.core.model.metastore_answers import KeyAnswer
from holdfast.core.model.zone_answers import LeaderTold, TroubleTold
from holdfast.core.zones.assignments import Assignments
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.work_queue import WorkKind
from holdfast.core.zones.zone_keys import encoded, part_key


class Told:
    """An operator who watches."""

    def __init__(self, stage: ZoneStage) -> None:
        self.stage = stage
        self.story = ZoneEvents()
        answer = ask(stage, stage.living()[0], ScanKeys("zones/"))
        self.story.begin(answer.keys)
        self.revision = answer.revision
        self.leaders()

    def leaders(self) -> list[ZoneEvent]:
        found: list[ZoneEvent] = []
        for process in self.stage.living():
            answer = order(self.stage, process, ShowLeaders(), 0.1)
            found += self.story.leaders(answer.leaders, answer.members)
            found += self.story.troubles(process.name, answer.troubles)
        return found

    def news(self) -> list[ZoneEvent]:
        answer = ask(self.stage, self.stage.living()[0], KeyChanges("zones/", self.revision))
        self.revision = answer.revision
        return self.story.changes(answer.keys)


def kinds(events: list[ZoneEvent]) -> list[str]:
    return [event.kind.value for event in events]


def test_what_operators_do_to_a_zone_is_told_once_each() -> None:
    stage = ZoneStage(4)
    told = Told(stage)
    assert told.story.names == ["z"]
    assert told.news() == [], "what was before is no news"
    first = stage.processes[0]
    order(stage, first, CreateZone("y", replicas=2))
    stage.wait(5)
    news = told.news()
    created = [event for event in news if event.kind is ZoneEventKind.CREATED]
    assert [(event.zone, event.changed) for event in created] == [("y", {"partitions": [7], "replicas": [2]})]
    assert created[0].revision > 0 and created[0].time_ms > 0
    placed = [event for event in news if event.kind is ZoneEventKind.PLACED]
    names = {info.name for info in first.picture.members()}
    assert sorted(event.partition or 0 for event in placed) == list(range(7))
    assert all(len(event.after) == 2 and set(event.after) <= names for event in placed)
    elected = told.leaders()
    assert sorted(event.partition or 0 for event in elected if event.zone == "y") == list(range(7))
    assert told.leaders() == [], "nobody else leads"

    order(stage, first, AlterZone("y", replicas=3, scale_down_s=5))
    stage.wait(20)
    news = told.news()
    [altered] = [event for event in news if event.kind is ZoneEventKind.ALTERED]
    assert altered.changed == {"replicas": [2, 3], "scale_down_s": [300, 5]}
    begun = [event for event in news if event.kind is ZoneEventKind.MOVE_BEGUN]
    moved = [event for event in news if event.kind is ZoneEventKind.ASSIGNED]
    for events in (begun, moved):
        assert sorted(event.partition or 0 for event in events) == list(range(7))
        assert all(len(event.before) == 2 and len(event.after) == 3 for event in events)
        assert all(set(event.before) < set(event.after) for event in events)
    order(stage, first, RenameZone("y", "x"))
    [renamed] = told.news()
    assert (renamed.kind, renamed.zone, renamed.was) == (ZoneEventKind.RENAMED, "x", "y")
    order(stage, first, ResetZone("x", [3]))
    assert (told.news()[0].kind, told.news()) == (ZoneEventKind.RESET_ASKED, [])
    order(stage, first, DropZone("x"))
    [dropped] = told.news()
    assert (dropped.kind, dropped.zone) == (ZoneEventKind.DROPPED, "x")


def test_the_death_of_a_member_is_told_by_leaders_data_nodes_and_moves() -> None:
    zone = ZoneSettings("z", partitions=7, replicas=3, scale_down_s=3)
    stage = ZoneStage(4, zone=zone)
    told = Told(stage)
    dead = stage.leader(0)
    name = next(info.name for info in dead.picture.members() if info.uuid == dead.driver.member.me)
    led = [part for part in range(7) if stage.leader(part) is dead]
    held = [part for part in range(7) if dead in stage.replicas(part)]
    dead.crash()
    stage.wait(40)
    news = told.news()
    nodes = next(event for event in news if event.kind is ZoneEventKind.DATA_NODES)
    assert set(nodes.before) - set(nodes.after) == {name}
    moved = [event for event in news if event.kind is ZoneEventKind.ASSIGNED]
    assert sorted(event.partition or 0 for event in moved if name in event.before) == held
    assert all(name not in event.after and len(event.after) == 3 for event in moved)
    elected = [event for event in told.leaders() if event.before == [name]]
    assert sorted(event.partition or 0 for event in elected) == led
    assert all(event.after != [name] and event.term for event in elected)


def test_a_move_that_is_given_up_and_one_with_another_target_are_told() -> None:
    stage = ZoneStage(4)
    told = Told(stage)
    named = stage.processes[0].driver.member.agreed.view
    stable = named.partitions(named.zones()[0])[2].stable
    assert stable is not None
    story = told.story
    other = Assignments((*stable.peers[:2], "other"))
    third = Assignments((*stable.peers[:2], "third"))
    key = part_key(1, 2, "pending")

    def change(revision: int, *pending: Assignments) -> list[ZoneEvent]:
        value = encoded(pending).decode() if pending else None
        return story.changes([KeyAnswer(key.decode(), value, revision, revision)])

    [begun] = change(1000, other)
    assert (begun.kind, begun.partition, len(begun.before)) == (ZoneEventKind.MOVE_BEGUN, 2, 3)
    assert "other" in begun.after
    [changed] = change(1001, third)
    assert (changed.kind, "third" in changed.after) == (ZoneEventKind.MOVE_CHANGED, True)
    [given_up] = change(1002)
    assert (given_up.kind, given_up.before) == (ZoneEventKind.MOVE_GIVEN_UP, begun.before)


def test_what_a_member_fails_to_do_is_told_after_ten_times_and_ten_more() -> None:
    story = ZoneEvents()

    def failing(attempts: int) -> list[tuple[str, int, str]]:
        told = story.troubles("m1", [TroubleTold(1, 4, attempts, "no room")] if attempts else [])
        return [(event.kind.value, event.attempts, event.why) for event in told]

    assert failing(9) == []
    assert failing(10) == [("move failing", 10, "no room")]
    assert failing(13) == failing(19) == []
    assert failing(21) == [("move failing", 21, "no room")]
    assert failing(0) == []
    assert failing(10) == [("move failing", 10, "no room")], "it went well meanwhile"


def test_a_member_tells_what_fails_again_and_again() -> None:
    stage = ZoneStage(4)
    leader = stage.leader(3)
    controller = leader.driver.member.agreed.zone_host._controller
    for _ in range(10):
        controller.queue.failed((WorkKind.GROUP, 1, 3), "nobody catches up")
    answer = order(stage, leader, ShowLeaders(), 0.01)
    assert [(one.zone, one.partition, one.why) for one in answer.troubles] == [(1, 3, "nobody catches up")]
    assert answer.troubles[0].attempts >= 10


def test_who_has_not_heard_of_the_new_leader_yet_tells_no_news() -> None:
    stage = ZoneStage(4)
    story = Told(stage).story
    [(place, known)] = [(at, one) for at, one in story._leaders.items() if at == (1, 3)]
    others = [node for node in story._names if node != known.node][:2]

    def heard(node: str, term: int) -> list[tuple[str, list[str]]]:
        events = story.leaders([LeaderTold(*place, node, term)], {})
        return [(event.kind.value, event.after) for event in events]

    assert heard(others[0], known.term + 1) == [("leader changed", [story._names[others[0]]])]
    assert heard(known.node, known.term) == [], "this member is late"
    assert heard(others[0], known.term + 2) == [], "the same one was elected again"
    assert heard(others[1], known.term + 3) == [("leader changed", [story._names[others[1]]])]
