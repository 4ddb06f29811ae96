"""One zone controller on a bench: every question it asks lies there until the test answers it, and time stands still.

The metastore is one object. The groups are written down, not run: a test says what a replica is like and who leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.core.zones.small_metastore import SmallMetastore
from tests.core.zones.test_transitions import at

from holdfast.core.metastore.invoke import Branch, If, MetastoreEntry, PutKey, RemoveKey
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_state import GroupNotice, LeaderElected
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import Assignments, Node, PartitionKeys
from holdfast.core.zones.data_nodes import DataNodes, data_nodes_of
from holdfast.core.zones.descriptors import (
    NEVER,
    Adjustment,
    ClusterTopology,
    DataMember,
    MemberPlace,
    PlacementKind,
    ZoneSettings,
)
from holdfast.core.zones.rendezvous import EvenLayout
from holdfast.core.zones.transitions import Consistency, LocalReplica, LocalState
from holdfast.core.zones.zone_commands import ZONE_FIELDS, altered, created, creation_keys, dropped
from holdfast.core.zones.zone_controller import ZoneController
from holdfast.core.zones.zone_keys import (
    PLACES_KEY,
    TOPOLOGY_KEY,
    changes_to,
    encoded,
    name_key,
    part_key,
    part_keys,
    part_of,
    partition_keys,
    zone_key,
    zone_of,
)
from holdfast.core.zones.zone_ports import Part
from holdfast.core.zones.zone_resets import RecoveryRequest


def configured(voters: str, learners: str = "", *, token: int = 0, old: str = "") -> Configuration:
    return Configuration(frozenset(voters), frozenset(old), frozenset(learners), token=token)


class Bench:
    """The metastore, the groups and the world of one controller, and the controller."""

    def __init__(self, me: Node = "A", *, leads: bool = True) -> None:
        self.metastore = SmallMetastore()
        self.leads = leads
        self.now = 1_000
        self.seen = 0
        """How many batches of changes the controller was told of."""
        self.tickets = 0
        self.asked: dict[int, list[bytes] | Branch] = {}
        """What the controller waits for, by ticket."""
        self.here: dict[Part, LocalCopy] = {}
        self.terms: dict[Part, int] = {}
        self.doubted: set[Part] = set()
        self.leaderless: set[Part] = set()
        self.calls: list[tuple[object, ...]] = []
        """What the controller has told groups to do."""
        self.answers: dict[Part, ChangeAnswer] = {}
        self.refusing = False
        self.agrees = self.cancels = True
        self.questions: list[tuple[Node, int]] = []
        """Whom it has asked for the states of its replicas."""
        self.failures: list[tuple[Part, int, str]] = []
        self.jitters: list[int] = []
        self.jitter_ms = 0
        self.controller = ZoneController(me, self, self, self)

    # -- the metastore

    def get(self, key: bytes) -> MetastoreEntry:
        return self.metastore.get(key)

    def scan(self, prefix: bytes) -> Sequence[MetastoreEntry]:
        found = sorted(self.metastore.entries.items())
        return [entry for key, entry in found if key.startswith(prefix) and entry.exists]

    def read(self, keys: Sequence[bytes]) -> int:
        self.tickets += 1
        self.asked[self.tickets] = list(keys)
        return self.tickets

    def invoke(self, branch: Branch) -> int:
        self.tickets += 1
        self.asked[self.tickets] = branch
        return self.tickets

    # -- the groups

    def copy(self, part: Part) -> LocalCopy | None:
        return self.here.get(part)

    def copies(self) -> Sequence[Part]:
        return sorted(self.here)

    def found(self, part: Part, configuration: Configuration) -> None:
        self.calls.append(("found", part, configuration))
        self.here[part] = LocalCopy(True, configuration)

    def join(self, part: Part) -> None:
        self.calls.append(("join", part))
        before = self.here.get(part, LocalCopy(False, Configuration()))
        self.here[part] = LocalCopy(True, before.configuration, before.generation)

    def halt(self, part: Part) -> None:
        self.calls.append(("halt", part))
        self.here[part] = LocalCopy(False, self.here[part].configuration, self.here[part].generation)

    def destroy(self, part: Part) -> None:
        self.calls.append(("destroy", part))
        del self.here[part]
        self.doubted.discard(part)

    def in_doubt(self, part: Part) -> bool:
        return part in self.doubted

    def has_leader(self, part: Part) -> bool:
        return part not in self.leaderless

    def term(self, part: Part) -> int | None:
        return self.terms.get(part)

    def _asked_as_leader(self, *call: object) -> None:
        self.calls.append(call)
        if self.refusing:
            raise ProposalRefused("it leads no more")

    def change_peers(self, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer:
        roles = ("".join(target.peers), "".join(target.learners))
        self._asked_as_leader("change", part, term, *roles, token)
        return self.answers.get(part, ChangeAnswer.STARTED)

    def agree_change(self, part: Part, term: int, token: int) -> bool:
        self._asked_as_leader("agree", part, term, token)
        return self.agrees

    def cancel_change(self, part: Part, term: int, token: int) -> bool:
        self._asked_as_leader("cancel", part, term, token)
        return self.cancels

    def reset(self, part: Part, voters: Sequence[Node], token: int) -> ChangeAnswer:
        self.calls.append(("reset", part, "".join(voters), token))
        return ChangeAnswer.STARTED

    # -- the world

    def jitter(self, most_ms: int) -> int:
        self.jitters.append(most_ms)
        return self.jitter_ms

    def ask_replicas(self, node: Node, zone: int) -> None:
        self.questions.append((node, zone))

    def failing(self, part: Part, attempts: int, why: str) -> None:
        self.failures.append((part, attempts, why))

    # -- what a test does

    def write(self, **values: object) -> int:
        """Give fields of zone 1 their values, for example `history=...`; the revision."""
        changes = [PutKey(zone_key(1, field), encoded(value)) for field, value in values.items()]
        self.metastore.invoke(self.metastore.read([]).guarded(changes), self.now)
        return self.metastore.revision

    def topology(self, names: str, *, leaving: str = "", **attributes: Mapping[str, str]) -> int:
        members = tuple(DataMember(name, attributes=dict(attributes.get(name, {}))) for name in names)
        value = ClusterTopology(self.metastore.revision, members, tuple(leaving))
        put = PutKey(TOPOLOGY_KEY, encoded(value))
        self.metastore.invoke(self.metastore.read([]).guarded([put]), self.now)
        return self.metastore.revision

    def places(self, places: Mapping[Node, MemberPlace]) -> None:
        put = PutKey(PLACES_KEY, encoded(dict(places)))
        self.metastore.invoke(self.metastore.read([]).guarded([put]), self.now)

    def create(self, settings: ZoneSettings, names: str) -> None:
        """The cluster has these members, and the zone; the controller has been told, and has nothing to do."""
        self.topology(names)
        _, invoke = created(self.metastore.read(creation_keys(settings)), settings, self.now)
        assert self.metastore.invoke(invoke, self.now).answer == 1
        self.controller.begin(self.now)
        self.seen = len(self.metastore.batches)
        self.tick(0)
        self.settle()
        self.calls.clear()
        self.jitters.clear()

    def alter(self, **changes: object) -> None:
        keys = [TOPOLOGY_KEY, name_key("z"), *(zone_key(1, field) for field in ZONE_FIELDS)]
        _, invoke = altered(self.metastore.read(keys), "z", changes, self.now)
        assert self.metastore.invoke(invoke, self.now).answer == 1

    def drop(self) -> None:
        keys = [name_key("z"), zone_key(1, "descriptor")]
        assert self.metastore.invoke(dropped(self.metastore.read(keys), "z")[1], self.now).answer == 1

    def keys(self, partition: int = 0) -> PartitionKeys:
        return partition_keys(self.metastore.read(part_keys(1, partition)), 1, partition)

    def set_keys(self, partition: int = 0, **changes: object) -> int:
        """Let a partition's keys be others; the revision."""
        before = self.keys(partition)
        after = PartitionKeys(
            **{**{name: getattr(before, name) for name in before.__struct_fields__}, **changes}  # type: ignore[arg-type]
        )
        written = changes_to(1, partition, before, after)
        self.metastore.invoke(self.metastore.read([]).guarded(written), self.now)
        return self.metastore.revision

    def remove(self, *keys: bytes) -> int:
        self.metastore.invoke(self.metastore.read([]).guarded([RemoveKey(key) for key in keys]), self.now)
        return self.metastore.revision

    def data_nodes(self) -> DataNodes:
        return data_nodes_of(self.metastore.read([zone_key(1, field) for field in ZONE_FIELDS]), 1)

    def revision(self, key: bytes) -> int:
        return self.metastore.get(key).revision

    def tell(self) -> None:
        """The controller is told of all changes of the metastore."""
        while self.seen < len(self.metastore.batches):
            batch = self.metastore.batches[self.seen]
            self.seen += 1
            self.controller.on_changes(self.now, batch[2])
            self.go_on()

    def notice(self, notice: GroupNotice, part: Part = (1, 0)) -> None:
        self.controller.on_notice(self.now, part, notice)

    def answer(self, ticket: int) -> None:
        what = self.asked.pop(ticket)
        if isinstance(what, list):
            self.controller.on_read(ticket, [self.get(key) for key in what], self.metastore.revision)
        else:
            self.controller.on_invoked(ticket, self.metastore.invoke(what, self.now))

    def round(self) -> list[int]:
        """Answer all that is asked now, and tell of what this has changed; what was answered."""
        tickets = list(self.asked)
        for ticket in tickets:
            self.answer(ticket)
        self.tell()
        return tickets

    def settle(self, rounds: int = 200) -> int:
        """Answer and tell until nothing is asked any more; how much was answered."""
        self.tell()
        answered = 0
        for _ in range(rounds):
            found = self.round()
            if not found:
                return answered
            answered += len(found)
        raise AssertionError(f"it never rests: {self.waits()}")

    def tick(self, after_ms: int = 100) -> None:
        self.now += after_ms
        self.controller.on_tick(self.now)
        self.go_on()

    def go_on(self) -> int:
        """Let the controller go on until nothing is left; in how many steps it did."""
        steps = 0
        while self.controller.has_more:
            self.controller.go_on(self.now)
            steps += 1
        return steps

    def waits(self) -> list[str]:
        """What is asked now, in order: the zones or the partitions that each question is about."""
        return [name for what in self.asked.values() for name in self._named(what)]

    def _named(self, what: list[bytes] | Branch) -> list[str]:
        if not isinstance(what, list):
            return ["invoke"]
        parts = sorted({found[:2] for found in map(part_of, what) if found is not None})
        if parts:
            return [f"{zone}/{partition}" for zone, partition in parts]
        return sorted({f"{found[0]}" for found in map(zone_of, what) if found is not None})

    def takes(self) -> list[tuple[object, ...]]:
        """What groups were told to do since this was asked last."""
        calls, self.calls = self.calls, []
        return calls

    def knows(self, zone: int = 1, **states: Mapping[int, LocalReplica]) -> None:
        """Members say how their replicas are."""
        for node, replicas in states.items():
            self.controller.on_replicas(node, zone, replicas)


# -- how tests begin

HA = Consistency.HIGH_AVAILABILITY
ONE = ZoneSettings("z", partitions=1, replicas=1, scale_down_s=0)
THREE = ZoneSettings("z", partitions=1, replicas=3, scale_down_s=0)
PART = (1, 0)
PENDING = part_key(1, 0, "pending")
STABLE = part_key(1, 0, "stable")
EVEN = ZoneSettings("z", partitions=4, replicas=2, scale_down_s=0, placement=PlacementKind.EVEN)
CANCEL = ZoneSettings("z", partitions=1, replicas=3, scale_down_s=0, adjustment=Adjustment.CANCEL)
PATIENT = ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER, consistency=HA, reset_after_s=NEVER)
WATCHED = ZoneSettings("z", partitions=2, replicas=3, scale_down_s=NEVER, consistency=HA, reset_after_s=7)


def made(settings: ZoneSettings = THREE, names: str = "AB", me: str = "A", *, leads: bool = True) -> Bench:
    bench = Bench(me, leads=leads)
    bench.create(settings, names)
    return bench


def leading(settings: ZoneSettings = THREE, names: str = "AB", *, term: int = 3) -> Bench:
    """A leads the metastore and the group of the only partition."""
    bench = made(settings, names)
    elect(bench, names, term=term)
    return bench


def elect(bench: Bench, voters: str, *, part: tuple[int, int] = PART, term: int = 3, token: int = 0) -> None:
    bench.here[part] = LocalCopy(True, configured(voters, token=token), bench.keys(part[1]).generation)
    bench.terms[part] = term
    bench.notice(LeaderElected(term), part)
    bench.settle()
    bench.takes()


def put_invoke(bench: Bench, key: bytes, value: bytes) -> If:
    return bench.metastore.read([]).guarded([PutKey(key, value)])


def create_zone(bench: Bench, settings: ZoneSettings) -> None:
    invoke = created(bench.metastore.read(creation_keys(settings)), settings, bench.now)[1]
    assert bench.metastore.invoke(invoke, bench.now).answer == 1


def touch(bench: Bench, *keys: bytes) -> None:
    """These keys are written again with what they have, and the controller is told."""
    for key in keys:
        bench.metastore.invoke(put_invoke(bench, key, bench.get(key).value or b""), bench.now)
    bench.tell()


def stable_keys(*partitions: int) -> list[bytes]:
    return [part_key(1, partition, "stable") for partition in partitions]


def layout_of(bench: Bench) -> EvenLayout | None:
    key = zone_key(1, "layout")
    return bench.metastore.read([key]).value(key, EvenLayout)


def look_again(bench: Bench) -> None:
    """The member is elected once more, and looks at everything."""
    bench.leads = False
    bench.tick()
    bench.leads = True
    bench.tick()
    bench.settle()


def moving(settings: ZoneSettings = THREE, **keys: object) -> tuple[Bench, int]:
    """A group of A and B is to become one of A, B and C; and the token of that."""
    bench = leading(settings, "AB")
    bench.leads = False
    bench.set_keys(**{"pending": (at("ABC", ts=4),), **keys})
    bench.tell()
    return bench, bench.revision(PENDING)


def distinct(bench: Bench) -> list[tuple[object, ...]]:
    """What groups were told to do: to say the same twice does nothing more."""
    return list(dict.fromkeys(bench.takes()))


def group_of(bench: Bench, count: int) -> list[tuple[int, int]]:
    """A leads this many groups of A and B, which are all to get C."""
    bench.leads = False
    parts = [(1, partition) for partition in range(count)]
    for part in parts:
        bench.here[part] = LocalCopy(True, configured("AB"))
        bench.terms[part] = 3
        bench.set_keys(part[1], pending=(at("ABC", ts=4),))
    return parts


def changed(bench: Bench) -> list[int]:
    return [call[1][1] for call in bench.takes() if call[0] == "change"]  # type: ignore[index]


def look(bench: Bench) -> list[tuple[object, ...]]:
    """What the keys make of the replica here."""
    bench.tell()
    return bench.takes()


def doubted(me_named: bool = True, **keys: object) -> Bench:
    bench = made(THREE, "ABC", leads=False)
    bench.here[PART] = LocalCopy(True, Configuration())
    bench.doubted.add(PART)
    bench.set_keys(**{"stable": at("ABC" if me_named else "BC", ts=5), **keys})
    bench.tell()
    bench.takes()
    return bench


def states(state: LocalState = LocalState.HEALTHY, **index: int) -> dict[str, dict[int, LocalReplica]]:
    return {node: {0: LocalReplica(state, at_)} for node, at_ in index.items()}


def lost(
    settings: ZoneSettings = THREE,
    *,
    manual: bool = True,
    alive: str = "AD",
    partitions: tuple[int, ...] = (),
) -> Bench:
    """B and C of A, B and C are gone, and somebody wants them to be given up."""
    bench = made(settings, "ABC")
    bench.leads = False
    bench.topology(alive)
    bench.tell()
    bench.leads = True
    bench.write(recovery=RecoveryRequest(manual=manual, partitions=partitions))
    bench.tell()
    return bench


def watched(settings: ZoneSettings = WATCHED, names: str = "ABC") -> Bench:
    bench = made(settings, names)
    bench.tick()
    bench.settle()
    return bench


def recovery(bench: Bench) -> RecoveryRequest | None:
    key = zone_key(1, "recovery")
    return bench.metastore.read([key]).value(key, RecoveryRequest)


def wait(bench: Bench, ms: int) -> None:
    bench.tick(ms)
    for name in "ABCDE":
        bench.knows(**{name: {}})
    bench.settle()
