"""Faults that wait for a protocol message: when it leaves, a member crashes, is paused or is cut off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core import messages as m
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.engine.link import HEADER
from holdfast.wire.codec import decode
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

PATIENCE_NS = 15 * SECOND

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


@dataclass(frozen=True, slots=True)
class Moment:
    message: m.Message
    sender: Process
    receiver: Process | None
    concerned: list[Process]


class Ambush:
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
        world.overhearing.append(self._overhear)
        world.after(PATIENCE_NS, self._give_up)

    def _give_up(self) -> None:
        if self._overhear in self._world.overhearing:
            self._world.overhearing.remove(self._overhear)

    def _overhear(self, sender: Process, to: MemberId, packet: bytes) -> None:
        # The second byte of each message is its tag.
        if len(packet) < HEADER.size + 2 or packet[HEADER.size + 1] != self._tag:
            return
        moment = self._moment(sender, to, decode(packet[HEADER.size :]))
        if not self._wanted(moment):
            return
        if self._passing:
            self._passing -= 1
            return
        self._give_up()
        self._strike(moment)

    def _moment(self, sender: Process, to: MemberId, message: m.Message) -> Moment:
        named = {sender.driver.member.me, to}
        if isinstance(message, m.TableOffer):
            rows = sender.picture.assignments
            for partition, row in message.rows:
                if row.version > rows[partition].version:
                    named.update(member for member in row.replicas if member is not None)
        by_uuid = {process.driver.member.me: process for process in self._cluster.living()}
        concerned = [process for uuid, process in by_uuid.items() if uuid in named]
        return Moment(message, sender, by_uuid.get(to), concerned)


def fills_next_primary(moment: Moment) -> bool:
    """Whether a backup that will become primary of a partition has received some of its content."""
    message, source = moment.message, moment.receiver
    if not isinstance(message, m.Filled) or source is None or not message.sequence:
        return False
    moving = source.picture.supplying()
    here = any(move.partition == message.partition and move.changes_primary for move, _ in moving)
    return here and _younger(moment.sender, source)


def backups_beside(moment: Moment, cluster: Cluster) -> list[Process]:
    """Younger backups of a partition whose primary must move, without the destination."""
    message, source = moment.message, moment.receiver
    if not isinstance(message, m.MigrationRequest) or source is None or not message.migration.changes_primary:
        return []
    row = source.picture.assignment(message.migration.partition)
    backups = {*row.replicas[1:]} - {message.migration.destination}
    return [
        process
        for process in cluster.living()
        if process.driver.member.me in backups and _younger(process, source)
    ]


def _younger(one: Process, other: Process) -> bool:
    order = [info.uuid for info in other.picture.members()]
    both = one.driver.member.me, other.driver.member.me
    return all(uuid in order for uuid in both) and order.index(both[0]) > order.index(both[1])


def outvoted(moment: Moment) -> bool:
    """Whether the master that offers assignments and the members in them lack a quorum of its view."""
    member = moment.sender.driver.member
    message, view = moment.message, member.picture.view
    if not isinstance(message, m.TableOffer) or view is None:
        return False
    concerned = {process.driver.member.me for process in moment.concerned}
    return bool(new_owners(moment)) and not is_quorum(view, concerned)


def new_owners(moment: Moment) -> list[tuple[int, Process]]:
    """Partitions whose assignment will change, each with its next primary if alive."""
    if not isinstance(moment.message, m.TableOffer):
        return []
    rows = moment.sender.picture.assignments
    by_uuid = {process.driver.member.me: process for process in moment.concerned}
    return [
        (partition, by_uuid[row.owner])
        for partition, row in moment.message.rows
        if row.version > rows[partition].version and row.owner in by_uuid
    ]
