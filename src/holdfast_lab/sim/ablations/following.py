"""Ablations of the rules of backups: which primary they follow, and how they take over."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.member import Member
from holdfast.core.messages import Replicate, Section, Summed
from holdfast.core.model.ids import MemberId
from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import Base
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import LeadershipStep, PrimaryActivation
from holdfast.core.state_transfer import anti_entropy, delta_or_full
from holdfast.core.store.replica import AnyReplica, MapReplica
from holdfast_lab.sim.ablations.place import Place, never
from holdfast_lab.sim.replacing import Method

Counters = list[tuple[str, int, int]]


def _takes_from_anybody(
    truth: Method, copies: LocalReplicas, sender: MemberId, message: Replicate, section: Section
) -> bool:
    """Accept records as if they came from the known primary at the known version."""
    row = copies._rows[section.partition]
    if copies._me in row.replicas and section.partition in copies.held:
        section = msgspec.structs.replace(section, version=row.version)
        return bool(truth(copies, row.owner, message, section))
    return section.version == row.version and bool(truth(copies, sender, message, section))


def _applies_again(
    truth: Method, copies: LocalReplicas, section: Section, record: Record, held: MapReplica
) -> None:
    if record.change is Change.PIN:
        truth(copies, section, record, held)
    else:
        held.enter(section.term)
        held.apply(record, copies._out.now_ns)
        if record.change is not Change.CALL:
            held.keep(section.term, [record], held.changes or copies._tail_bytes)
        copies._write_down(copies.held[section.partition], section, [record])


def _takes_office_at_once(_: Method, activation: PrimaryActivation, partition: int) -> None:
    activation.cancel(partition)
    activation._step(partition, LeadershipStep.NAMED)
    activation._become_primary(partition)


def _promotes_itself(truth: Method, member: Member, name: str) -> None:
    truth(member, name)
    suspects = set(member.membership.detector.suspects(member.out.now_ns))
    for partition, row in enumerate(member.table.rows):
        first = row.index_of(member.me) == 1
        if row.owner in suspects and first and partition not in member.activation.active:
            member.activation.active.add(partition)
            member.lane.serving[partition] = member.copies.held[partition]
            member.lane.leading[partition] = member.copies.held[partition]


def _equal_without_terms(_: Method, copies: LocalReplicas, mine: Counters | None, counters: Counters) -> bool:
    return mine is not None and [one[:2] for one in mine] == [tuple(one[:2]) for one in counters]


def _no_prefix_without_terms(_: Method, mine: delta_or_full.Mine, base: Base) -> str:
    return "" if base.highest <= mine.counter else f"{base.highest} is held there, and {mine.counter} here"


def _relation_without_terms(truth: Method, held: AnyReplica, said: Summed) -> Any:
    return truth(held, msgspec.structs.replace(said, term=held.term))


def _another_term(held: AnyReplica | None, said: Summed) -> bool:
    return held is not None and held.counter == said.counter and held.term != said.term


def _has_a_base(mine: delta_or_full.Mine, base: Base | None) -> Any:
    return base is not None and base.highest and base.lwm


FOLLOWING: dict[str, tuple[Place, ...]] = {
    "fence": (Place(LocalReplicas, "_take", _takes_from_anybody),),
    "record-order": (Place(LocalReplicas, "_gap", never), Place(LocalReplicas, "_pass_over", _applies_again)),
    "activate": (Place(PrimaryActivation, "begin", _takes_office_at_once),),
    "promotion-by-table": (
        Place(Member, "on_timer", _promotes_itself, when=lambda member, name: name == "heartbeat"),
    ),
    "term": (
        Place(LocalReplicas, "_equal", _equal_without_terms),
        Place(delta_or_full, "_prefix_problem", _no_prefix_without_terms, when=_has_a_base),
        Place(anti_entropy, "_relation", _relation_without_terms, when=_another_term),
    ),
}
