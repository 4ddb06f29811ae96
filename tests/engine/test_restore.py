"""Whose files are these, and what do they prove of themselves when they are opened?"""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.engine.lives import SMALL, Life, content, reopened
from tests.engine.memory_disk import MemoryDisk, Platter

from holdfast.engine.journal import Journal
from holdfast.engine.ports import DiskFailed
from holdfast.engine.restore import FORMAT, IDENTITY, IdentityFile, identity_of
from holdfast.errors import ConfigError, JournalBroken


def disk_with(**files: bytes) -> MemoryDisk:
    platter = Platter()
    for name, data in files.items():
        platter.files[name] = platter.seen[name] = bytearray(data)
    return MemoryDisk(platter)


def identity(disk: MemoryDisk, name: str = "one") -> IdentityFile:
    return identity_of(disk, name, lambda: "new")


def holding(data: bytes) -> MemoryDisk:
    return disk_with(**{IDENTITY: data})


MINE = msgspec.json.encode(IdentityFile(FORMAT, "store", 4, "one"))


def test_an_empty_directory_becomes_a_new_store() -> None:
    found = identity(disk_with(notes=b"of somebody"))
    assert (found.format, found.store, found.incarnation, found.member) == (FORMAT, "new", 0, "one")
    assert (found.cluster_id, found.whole, found.behind) == ("", True, False)


@pytest.mark.parametrize("kind", ["segment", "checkpoint"])
def test_journal_files_without_an_identity_are_nobodys(kind: str) -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "k", b"v"))
    life.checkpoint(0)
    life.settle()
    kept = [name for name in platter.seen if name != IDENTITY and name.startswith("j") == (kind == "segment")]
    assert kept
    for name in list(platter.seen):
        if name not in kept:
            del platter.seen[name]
    with pytest.raises(ConfigError, match="cannot tell which member wrote these files"):
        identity(MemoryDisk(platter))


def test_files_are_known_by_what_they_say() -> None:
    found = identity(holding(MINE))
    assert (found.store, found.incarnation) == ("store", 4)
    assert identity(holding(MINE), "").store == "store", "a member without a name takes any"
    nameless = msgspec.json.encode(IdentityFile(FORMAT, "store", 4, ""))
    assert identity(holding(nameless), "two").store == "store"
    with pytest.raises(ConfigError, match="belongs to the member 'one', and this one is 'two'"):
        identity(holding(MINE), "two")


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b'{"format": %d}' % FORMAT, b"\xff\xfe"])
def test_an_identity_that_cannot_be_read_ends_it(data: bytes) -> None:
    with pytest.raises(JournalBroken, match="cannot be read"):
        identity(holding(data))
    disk = holding(MINE)
    disk.unreadable.add(IDENTITY)
    with pytest.raises(JournalBroken, match="cannot be read"):
        identity(disk)


def test_another_format_is_said_to_be_another_format() -> None:
    with pytest.raises(ConfigError, match=f"is of format {FORMAT + 1}; this Holdfast knows format {FORMAT}"):
        identity(holding(b'{"format": %d}' % (FORMAT + 1)))


def test_files_prove_how_far_they_were_when_a_life_first_began() -> None:
    platter = Platter()
    life = Life(platter).settle()
    first = life.recovered.proof
    assert (first.before, first.reached, first.cut) == ("", 0, False)
    life.begin(0)
    life.durably(life.put(0, "k", b"v"))
    life.journal.admitted("cluster", behind=False)
    life.settle()
    life.journal.close()
    second = Life(platter).settle()
    proof = second.recovered.proof
    assert proof.token != first.token
    assert (proof.before, proof.cut) == (first.token, False)
    assert proof.reached > 0
    second.journal.close()
    third = Life(platter)
    assert third.recovered.proof == proof, "no cluster has admitted the second"
    assert (third.recovered.incarnation, third.recovered.cluster_id) == (2, "cluster")


def test_a_cut_end_is_part_of_the_proof_and_costs_nothing_that_was_durable() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(0)
    life.durably(life.put(0, "k", b"v"))
    life.journal.admitted("cluster", behind=False)
    life.settle()
    held = content(life.copies[0])
    life.put(0, "torn", b"v" * 3000)
    life.disk.until(lambda: bool(platter.unsynced))
    (name,) = platter.unsynced
    ((offset, data),) = platter.unsynced[name]
    platter.files[name][offset : offset + 512] = data[:512]
    platter.unsynced.clear()
    platter.crash(random.Random(0))
    found = reopened(platter)
    assert found.proof.cut
    assert len(found.damage) == 1
    assert (found.whole, found.uncertain) == (True, {})
    assert content(found.copies[0]) == held


def durable_life(platter: Platter) -> Life:
    life = Life(platter).settle()
    life.begin(0)
    life.begin(1)
    for key in ("a", "b", "c"):
        life.durably(life.put(0, key, key.encode() * 50))
    life.journal.admitted("cluster", behind=False)
    life.settle()
    life.journal.close()
    return life


def test_damage_before_the_end_is_told_until_the_cluster_has_made_up_for_it() -> None:
    platter = Platter()
    life = durable_life(platter)
    (name,) = [name for name in platter.files if b"b" * 50 in platter.files[name]]
    data = platter.files[name]
    data[data.index(b"b" * 50)] ^= 1
    platter.seen[name] = bytearray(data)
    second = Life(platter)
    found = second.recovered
    assert found.proof.cut
    assert (found.whole, len(found.damage)) == (False, 1)
    assert found.uncertain.keys() == {0, 1}
    assert found.uncertain[0] == found.damage[0]
    assert content(found.copies[0])["m"][0] == {b"a": b"a" * 50}, (
        "nothing is joined to it from behind the damage"
    )
    assert life.recovered.whole
    second.settle()
    second.journal.close()


def test_what_the_disk_cannot_read_is_damage_and_not_the_end() -> None:
    platter = Platter()
    durable_life(platter)
    read = MemoryDisk.read

    class Worn(MemoryDisk):
        """One piece of one file cannot be read."""

        def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
            data = read(self, name, offset, size)
            at = self.platter.seen[name].index(b"b" * 50) if b"b" * 50 in self.platter.seen[name] else -1
            if at >= 0 and offset <= at < offset + (len(data) or 1):
                raise DiskFailed("worn out")
            return data

    found = Journal.open(
        Worn(platter), SMALL, name="one", uuid="member", new_id=lambda: "new", now_ns=0, wall_ms=0
    )[1]
    assert not found.whole
    assert found.damage
    assert found.copies == {}
    assert found.proof.cut
