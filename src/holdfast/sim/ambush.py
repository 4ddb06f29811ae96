"""Faults that wait for their moment: a message of a protocol is about to leave, and just then somebody dies, stands
still, or is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core import messages as m
from holdfast.core.cluster.agreement import is_quorum
from holdfast.core.machine import SECOND, MemberId
from holdfast.engine.link import HEADER
from holdfast.sim.cluster import Cluster
from holdfast.sim.world import Process, World
from holdfast.wire.codec import decode

PATIENCE_NS = 8 * SECOND
"""How long an ambush waits."""

OCCASIONS: tuple[type[m.Message], ...] = (
    m.Accept,
    m.Accepted,
    m.Enlist,
    m.Enlisted,
    m.Fill,
    m.Filled,
    m.MigrationReady,
    m.MigrationRequest,
    m.Replicate,
    m.Replicated,
    m.TableCommit,
    m.TableOffer,
    m.TableReport,
    m.TableStored,
)
"""Messages that are worth waiting for."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A message that is about to leave."""

    message: m.Message
    sender: Process
    receiver: Process | None
    """None when it is dead."""
    concerned: list[Process]
    """Sender, receiver, and, of new rows, whoever they name."""


class Ambush:
    """Listens to every packet until the one it waits for, or until its patience ends."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        occasion: type[m.Message],
        *,
        passing: int,
        wanted: Callable[[Moment], bool],
        strike: Callable[[Moment], None],
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._tag = occasion.__struct_config__.tag
        self._passing = passing
        self._wanted = wanted
        self._strike = strike
        world.overhear = self._overhear
        world.after(PATIENCE_NS, self._give_up)

    def _give_up(self) -> None:
        if self._world.overhear == self._overhear:
            self._world.overhear = None

    def _overhear(self, sender: Process, to: MemberId, packet: bytes) -> None:
        # The second byte of a message is its number, for there are few messages and few fields.
        if len(packet) < HEADER.size + 2 or packet[HEADER.size + 1] != self._tag:
            return
        moment = self._moment(sender, to, decode(packet[HEADER.size :]))
        if not self._wanted(moment):
            return
        if self._passing:
            self._passing -= 1
            return
        self._world.overhear = None
        self._strike(moment)

    def _moment(self, sender: Process, to: MemberId, message: m.Message) -> Moment:
        named = {sender.driver.member.me, to}
        if isinstance(message, m.TableOffer):
            rows = sender.driver.member.table.rows
            for partition, row in message.rows:
                if row.version > rows[partition].version:
                    named.update(member for member in row.replicas if member is not None)
        by_uuid = {process.driver.member.me: process for process in self._cluster.living()}
        concerned = [process for uuid, process in by_uuid.items() if uuid in named]
        return Moment(message, sender, by_uuid.get(to), concerned)


def to_next_primary(moment: Moment) -> bool:
    """Whether a write goes to a member that is to become the primary of its partition."""
    message, receiver = moment.message, moment.receiver
    if not isinstance(message, m.Replicate) or receiver is None:
        return False
    written = {section.partition for section in message.sections}
    return any(
        migration.partition in written
        and migration.changes_primary
        and migration.destination == receiver.driver.member.me
        for migration, _ in moment.sender.driver.member.source.active()
    )


def backups_beside(moment: Moment, cluster: Cluster) -> list[Process]:
    """When the primary of a partition is asked to move it to another: its backups, but for that other."""
    message, source = moment.message, moment.receiver
    if not isinstance(message, m.MigrationRequest) or source is None or not message.migration.changes_primary:
        return []
    row = source.driver.member.table.rows[message.migration.partition]
    backups = {*row.replicas[1:]} - {message.migration.destination}
    return [process for process in cluster.living() if process.driver.member.me in backups]


def outvoted(moment: Moment) -> bool:
    """Whether those whom new rows name, with the master that offers them, are no quorum of its view."""
    member = moment.sender.driver.member
    message, view = moment.message, member.membership.view
    if not isinstance(message, m.TableOffer) or view is None:
        return False
    changed = any(row.version > member.table.rows[partition].version for partition, row in message.rows)
    return changed and not is_quorum(view, {process.driver.member.me for process in moment.concerned})
