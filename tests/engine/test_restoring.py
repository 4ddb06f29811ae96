"""Whose files are these, and what do they prove of themselves when they are opened?"""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.engine.lives import Life, content, reopened
from tests.engine.memory_disk import MemoryDisk, Platter

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
    with pytest.raises(ConfigError, match="nobody can say whose files these are"):
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
