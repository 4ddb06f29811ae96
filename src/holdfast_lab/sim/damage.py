"""Damages copies on backups on purpose, and checks that they are repaired."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from holdfast.core.member import Member
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.replica import MapReplica
from holdfast_lab.check import convergence
from holdfast_lab.sim.world import Process

KINDS = ("value", "entry lost", "entry added", "rot", "behind", "ahead")
"""rot: memory that changed unnoticed; behind: the copy missed the last updates; ahead: it counts updates that
never existed.
"""
MISSED = 3
HARM = "harm"


@dataclass(frozen=True, slots=True)
class Damage:
    process: Process
    partition: int
    name: str
    kind: str

    @property
    def member(self) -> Member:
        return self.process.driver.member

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.process.name}: {self.kind} in {self.name}"


def spoil(living: Iterable[Process], known: list[Damage], draw: random.Random) -> Damage | None:
    found = [
        (process, partition, held)
        for process in living
        for partition, copy in process.picture.held.items()
        if process.picture.assignment(partition).index_of(process.driver.member.me) > 0
        and all(damage.partition != partition for damage in known)
        for held in copy.maps.values()
        if held.state.entries and held.counter > MISSED
    ]
    if not found:
        return None
    process, partition, held = draw.choice(found)
    damage = Damage(process, partition, held.name, draw.choice(KINDS))
    seed = draw.getrandbits(32)
    if process.driver.recorded is not None:
        process.driver.recorded.outside(HARM, partition, held.name, damage.kind, seed)
    _harm(held, damage.kind, random.Random(seed))
    known.append(damage)
    return damage


def harm_again(member: Member, what: str, arguments: bytes) -> None:
    assert what == HARM
    partition, name, kind, seed = msgspec.msgpack.decode(arguments, type=tuple[int, str, str, int])
    _harm(member.picture.held[partition].maps[name], kind, random.Random(seed))


def _harm(held: MapReplica, kind: str, draw: random.Random) -> None:
    key = draw.choice(list(held.state.entries))
    match kind:
        case "value":
            held.state.store(key, b"wrong", 0, 0, 0, 0)
        case "entry lost":
            held.state.drop(key)
        case "entry added":
            held.state.store(b"\xff\xff\xff\xf5stray", b"stray", 0, 0, 0, 0)
        case "rot":
            held.state.entries[key] = b"rotten"
        case "ahead":
            held.updates = UpdateCounter(held.counter + draw.randint(1, MISSED))
        case _:
            held.updates = UpdateCounter(held.counter - draw.randint(1, MISSED))
            held.state.drop(key)


def mended(damage: Damage, primary: Member | None) -> bool:
    """Whether the copy equals its primary's again, or is gone. False while undecided."""
    member, partition = damage.member, damage.partition
    if damage.process.dead or partition not in member.picture.held:
        return True
    if primary is None or primary.picture.unfinished(partition) or not primary.picture.serves(partition):
        return False
    row = primary.picture.assignment(partition)
    if row.index_of(member.me) <= 0 or member.picture.assignment(partition).version != row.version:
        return False  # Copies at another version than the primary's are not compared.
    return not convergence.unequal(primary.picture, [member.picture], partition)
