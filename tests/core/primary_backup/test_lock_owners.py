"""Locks of clients that have gone: when they are released, and when they are kept."""

from __future__ import annotations

import pytest

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import ClientsAsked, ClientsConnected
from holdfast.core.model.decisions import Update
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.map_locks import MapLock, encode_lock, locks_of, owner_of
from holdfast.core.model.notices import LockEnded, Notice
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import lock_owners
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.lock_owners import GONE_NS, LOOK_NS, LockOwners
from holdfast.core.store.partition_copy import PartitionCopy

ME, BEN, CAT = MemberId("me"), MemberId("ben"), MemberId("cat")
ADA, EVE = b"\0" + b"a" * 16, b"\0" + b"e" * 16


class Info:
    def __init__(self, uuid: MemberId) -> None:
        self.uuid = uuid


class Membership:
    me = ME

    def __init__(self, *others: MemberId) -> None:
        self.others = others

    def members(self) -> list[Info]:
        return [Info(ME), *map(Info, self.others)]


class Stage:
    def __init__(self, *others: MemberId) -> None:
        settings = Settings(partitions=PartitionSettings(count=2), maps={"default": MapSettings(backups=0)})
        self.out = Outbox(self)
        self.lane = Lane(ME, settings, self.out, Log(self.out, on=False))
        self.lane.attach([Assignment(1, (ME,)), Assignment(1, (ME,))])
        self.membership = Membership(*others)
        self.owners = LockOwners(self.out, self.membership, self.lane)  # type: ignore[arg-type]
        self.ended: list[bytes] = []
        for partition in range(2):
            self.lane.leading[partition] = self.lane.serving[partition] = PartitionCopy(partition, 0)

    def on_notice(self, notice: Notice) -> None:
        if isinstance(notice, LockEnded):
            self.ended.append(notice.key)
            copy = self.lane.leading[notice.partition]
            assert copy is not None
            copy.locks.look_at("m")

    def lock(self, client: bytes, key: bytes, partition: int = 0) -> None:
        copy = self.lane.leading[partition]
        assert copy is not None
        held = self.lane.open(copy, locks_of("m"))
        record = encode_lock(MapLock(owner_of(client, 1), 1, 0))
        self.lane.carry_out(copy, held, Update(Change.SET, key, record, 0, 0, 0))
        copy.locks.look_at("m")
        self.lane.close_batch(lambda known: None)
        self.owners.on_locked(client)

    def pass_rounds(self, count: int = 1, *answers: tuple[MemberId, list[bytes]]) -> list[ClientsAsked]:
        """So many looks, each answered like this. Returns the questions."""
        asked = []
        for _ in range(count):
            self.out.now_ns += LOOK_NS
            self.owners.on_timer()
            sent = [effect for effect in self.out.take() if isinstance(effect, Send)]
            for effect in sent:
                assert isinstance(effect.message, ClientsAsked)
                asked.append(effect.message)
            for sender, clients in answers:
                self.owners.on_connected(sender, ClientsConnected(asked[-1].round, clients))
        return asked


ROUNDS = GONE_NS // LOOK_NS + 2


@pytest.mark.rule("primary_backup/G-1")
def test_a_client_that_is_connected_nowhere_for_a_while_loses_its_locks() -> None:
    stage = Stage(BEN, CAT)
    stage.lock(ADA, b"x")
    stage.lock(ADA, b"y", partition=1)
    stage.lock(EVE, b"z")
    answers = ((BEN, []), (CAT, [EVE]))
    stage.pass_rounds(ROUNDS - 1, *answers)
    assert stage.ended == []
    stage.pass_rounds(1, *answers)
    assert sorted(stage.ended) == [b"x", b"y"]
    stage.pass_rounds(5, *answers)
    assert sorted(stage.ended) == [b"x", b"y"]


@pytest.mark.rule("primary_backup/G-1")
@pytest.mark.parametrize("interruption", ["no answer", "elsewhere", "here", "view"])
def test_a_client_keeps_its_locks(interruption: str) -> None:
    stage = Stage(BEN)
    stage.lock(ADA, b"x")
    if interruption == "here":
        stage.owners.connected.add(1, ADA)
        stage.owners.connected.add(2, ADA)
        stage.owners.connected.remove(2)
        stage.owners.connected.remove(3)
    for _ in range(3 * ROUNDS):
        if interruption == "view":
            (asked,) = stage.pass_rounds()
            stage.owners.on_view()
            stage.owners.on_connected(BEN, ClientsConnected(asked.round, []))
        elif interruption == "no answer":
            stage.pass_rounds(1, (CAT, []))
        elif interruption == "elsewhere":
            stage.pass_rounds(1, (BEN, [ADA]))
        else:
            assert stage.pass_rounds() == [], "nothing to ask"
    assert stage.ended == []


@pytest.mark.rule("primary_backup/G-1")
def test_a_client_that_comes_back_counts_from_then_on() -> None:
    stage = Stage(BEN)
    stage.lock(ADA, b"x")
    stage.pass_rounds(ROUNDS - 2, (BEN, []))
    stage.pass_rounds(1, (BEN, [ADA]))
    stage.pass_rounds(ROUNDS - 1, (BEN, []))
    assert stage.ended == []
    stage.pass_rounds()
    assert stage.ended == [b"x"]


@pytest.mark.rule("primary_backup/G-2")
def test_a_client_that_locks_again_is_not_gone() -> None:
    stage = Stage(BEN)
    stage.lock(ADA, b"x")
    stage.pass_rounds(ROUNDS - 1, (BEN, []))
    stage.lock(ADA, b"y")
    stage.pass_rounds(ROUNDS - 1, (BEN, []))
    assert stage.ended == []


def test_the_only_member_asks_no_other_and_looks_at_many_locks_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock_owners, "LOOKED_MAX", 3)
    stage = Stage()
    for number in range(10):
        stage.lock(ADA, b"%d" % number, partition=number % 2)
    for _ in range(200):
        stage.out.now_ns += 100 * MILLISECOND
        before = len(stage.ended)
        stage.owners.on_timer()
        assert len(stage.ended) - before <= 4
    assert len(stage.ended) == 10
    stage.out.take()
    stage.owners.on_timer()
    assert stage.out.take() == [], "no locks, no timer"


def test_a_question_is_answered_with_the_clients_that_are_connected() -> None:
    stage = Stage(BEN)
    stage.owners.connected.add(1, ADA)
    stage.owners.on_asked(BEN, ClientsAsked(9, [ADA, EVE]))
    assert stage.out.take() == [Send(BEN, ClientsConnected(9, [ADA]))]
    stage.owners.connected.remove(1)
    stage.owners.on_asked(BEN, ClientsAsked(10, [ADA, EVE]))
    assert stage.out.take() == [Send(BEN, ClientsConnected(10, []))]


def test_many_clients_are_asked_about_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_owners, "ASKED_MAX", 2)
    stage = Stage(BEN)
    clients = [b"\0" + bytes([number]) * 16 for number in range(5)]
    for client in clients:
        stage.lock(client, client)
    asked = stage.pass_rounds(3)
    assert {client for message in asked for client in message.clients} == set(clients)
