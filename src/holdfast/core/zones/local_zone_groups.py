"""The Raft groups of this member by partition of a zone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.model.ids import METASTORE_GROUP, group_of, place_of
from holdfast.core.multiraft.group_host import GroupHost
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.raft_partition.leader_routing import LeaderRouting
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import Assignments, Node
from holdfast.core.zones.zone_ports import Part


class LocalZoneGroups:
    """Implements `ZoneGroups`. Methods for leaders raise ProposalRefused on members that do not lead."""

    def __init__(self, groups: GroupHost, routing: LeaderRouting) -> None:
        self._groups = groups
        self._routing = routing
        self._unusable: set[Part] = set()
        """Their files cannot be used. Each is reported once."""

    def copy(self, part: Part) -> LocalCopy | None:
        number = group_of(*part)
        hosted = self._groups.hosted.get(number)
        if hosted is not None:
            return LocalCopy(not hosted.halted, hosted.group.configuration, hosted.group.generation)
        if part in self._unusable:
            # It counts as running, so that the controller does not start it again and again.
            return LocalCopy(True, Configuration())
        if number not in self._groups.journal.found:
            return None
        try:
            kept = self._groups.journal.peek(number)
        except msgspec.DecodeError:
            return LocalCopy(False, Configuration())
        return LocalCopy(False, kept.log().configuration, kept.hard.generation)

    def copies(self) -> Sequence[Part]:
        numbers = {*self._groups.hosted, *self._groups.journal.found} - {METASTORE_GROUP}
        return [place_of(number) for number in sorted(numbers)]

    def found(self, part: Part, configuration: Configuration) -> None:
        self._start(part, configuration)

    def join(self, part: Part) -> None:
        if group_of(*part) in self._groups.hosted:
            self._groups.resume(group_of(*part))
        else:
            self._start(part, Configuration())

    def _start(self, part: Part, configuration: Configuration) -> None:
        number = group_of(*part)
        if part[0] not in self._routing.known:
            return
        if self._groups.start(number, configuration, self._routing.partition(number)) is None:
            self._unusable.add(part)

    def halt(self, part: Part) -> None:
        self._groups.halt(group_of(*part))

    def destroy(self, part: Part) -> None:
        number = group_of(*part)
        self._unusable.discard(part)
        self._groups.stop(number)
        self._routing.end(number)

    def has_leader(self, part: Part) -> bool:
        return self._groups.lead(group_of(*part)) is not None

    def in_doubt(self, part: Part) -> bool:
        return part in self._unusable

    def term(self, part: Part) -> int | None:
        return self._groups.term(group_of(*part))

    def change_peers(self, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer:
        """The group asks before new voters join (zones/A-12). A leader that will be none of them stores its locks first
        (raft_partition/L-3).
        """
        number = group_of(*part)
        group = self._groups.running(number)
        if self._groups.me not in target.peers:
            self._routing.partition(number).store_locks()
        return group.change_peers(term, target.peers, target.learners, token, asks=True)

    def agree_change(self, part: Part, term: int, token: int) -> bool:
        return self._groups.running(group_of(*part)).agree_change(term, token)

    def cancel_change(self, part: Part, term: int, token: int) -> bool:
        return self._groups.running(group_of(*part)).cancel_change(term, token)

    def reset(self, part: Part, voters: Sequence[Node], token: int) -> ChangeAnswer:
        # Revisions of the metastore rise nearly always faster than the terms of a group.
        return self._groups.running(group_of(*part)).reset(voters, token, term=token)
