"""A simulated cluster with a metastore and a zone, and the words to tell a story with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from tests.lab.sim.stage import Stage, settings

from holdfast.config import MapSettings, MetastoreSettings, Settings
from holdfast.core.metastore.invoke import Invoked, MetastoreEntry
from holdfast.core.model.ids import GroupNumber, group_of
from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.zone_commands import created, creation_keys
from holdfast.core.zones.zone_keys import KeysRead
from holdfast.errors import RequestError
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.world import Process

ZONED = "zoned"
"""A map in the zone `z`."""


def zoned_settings(**changed: dict[str, object]) -> Settings:
    base = settings(metastore={"voters": 3}, **changed)
    return msgspec.structs.replace(base, maps={**base.maps, ZONED: MapSettings(raft_zone="z")})


class Asking:
    """Asks the metastore of one member, and keeps what it is told."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.metastore = process.driver.member.agreed.metastore
        self.entries: list[MetastoreEntry] | None = None
        self.revision = 0
        self.invoked: Invoked | None = None
        self.failed: RequestError | None = None

    def on_read(self, ticket: int, entries: list[MetastoreEntry], revision: int) -> None:
        self.entries, self.revision = entries, revision

    def on_invoked(self, ticket: int, invoked: Invoked) -> None:
        self.invoked = invoked

    def on_failed(self, ticket: int, error: RequestError) -> None:
        self.failed = error


class ZoneStage(Stage):
    """Members, their metastore, and the zone `z`, in which one map lives."""

    def __init__(
        self,
        hosts: int,
        *,
        zone: ZoneSettings | None = None,
        settings: Settings | None = None,
        spare: int = 0,
        named: bool = False,
        builds: Sequence[FeatureLevels] = (),
    ) -> None:
        super().__init__(
            hosts, settings=settings or zoned_settings(), spare=spare, named=named, builds=builds
        )
        self.wait(10)
        count = self.settings.partitions.count
        self.create(zone or ZoneSettings("z", partitions=count, replicas=3))
        self.wait(10)

    def create(self, zone: ZoneSettings) -> None:
        process = self.processes[0]
        asking = Asking(process)
        asking.metastore.read(creation_keys(zone), asking)
        self.wait(2)
        assert asking.entries is not None, asking.failed
        read = KeysRead(asking.entries, asking.revision)
        _, branch = created(read, zone, process.driver.member.out.wall_ms())
        asking.metastore.invoke(branch, asking)
        self.wait(2)
        assert asking.invoked is not None and asking.invoked.answer == 1, asking.failed

    def request(self, process: Process, op: Op, key: str, value: str = "") -> list[Outcome]:
        """Send a request on the map in the zone now; the answer comes into the list."""
        raw = wire_key(key)
        partition = partition_of(raw, 0, self.settings.partitions.count)
        answers: list[Outcome] = []
        asked = Request(op, ZONED, [partition], raw, value.encode())
        process.step(partial(process.driver.execute, asked, answers.append))
        return answers

    def zput(self, process: Process, key: str, value: str) -> None:
        answers = self.request(process, Op.SET, key, value)
        self.until_answered(answers, 2)
        assert [answer.status for answer in answers] == [Status.OK], answers

    def zget(self, process: Process, key: str) -> str | None:
        answers = self.request(process, Op.GET, key)
        self.until_answered(answers, 2)
        [answer] = answers
        assert answer.status is Status.OK, answer
        return answer.value.decode() if isinstance(answer.value, bytes) else None

    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.dead and not process.driver.stopped]

    def replicas(self, partition: int, zone: int = 1) -> dict[Process, ZonePartition]:
        number: GroupNumber = group_of(zone, partition)
        found = {}
        for process in self.living():
            hosted = process.driver.member.agreed.groups.hosted.get(number)
            if hosted is not None and not hosted.halted:
                assert isinstance(hosted.client, ZonePartition)
                found[process] = hosted.client
        return found

    def voters(self, partition: int, zone: int = 1) -> frozenset[str]:
        """Who votes in a partition's group, as its leader knows."""
        groups = self.leader(partition, zone).driver.member.agreed.groups
        return groups.hosted[group_of(zone, partition)].group.configuration.voters

    def leader(self, partition: int, zone: int = 1) -> Process:
        leading = [process for process, client in self.replicas(partition, zone).items() if client.leads]
        assert len(leading) == 1, leading
        return leading[0]

    def same(self, zone: int = 1) -> None:
        """All replicas of each partition hold the same, once followers have heard what was committed."""
        self.wait(1)
        for part in range(self.settings.partitions.count):
            states = [list(client.state.pieces()) for client in self.replicas(part, zone).values()]
            assert states and all(state == states[0] for state in states), part


def kept_settings() -> Settings:
    """The same, with files on every host."""
    base = simulated_settings(1, 7, journal="sync")
    return msgspec.structs.replace(
        base, metastore=MetastoreSettings(voters=3), maps={**base.maps, ZONED: MapSettings(raft_zone="z")}
    )
