"""The comparison of files: what directories hold, how it is compared, and what is no alarm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from holdfast.config import Settings
from holdfast.core.model.ids import group_of
from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.zone_batches import ZoneWrites
from holdfast.core.multiraft.group_journal import PIECES
from holdfast.core.multiraft.persistence import GroupHead, encoded
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_messages import RaftSnapshot
from holdfast.core.raft.raft_state import HardState
from holdfast.core.raft_partition.partition_commands import ZoneCommand
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.store.replica_comparison import Finding, ReplicaDigest, compare_with_newest
from holdfast.engine.restore import IDENTITY, IdentityFile
from holdfast.errors import ConfigError, JournalBroken
from holdfast.replica_comparison.comparison_report import Notes, readable
from holdfast.replica_comparison.files_source import FilesSource, labels_of
from holdfast.replica_comparison.sources import find_keys, verify_source
from holdfast.replica_comparison.stores import checkpoint_bytes, read_store
from holdfast.wire.checkpoint import encode_checkpoint
from holdfast.wire.values import to_stored

Entries = Mapping[bytes, bytes]


def some(count: int = 5, **changed: bytes | None) -> dict[bytes, bytes]:
    """Entries key0 … with value 0 …; those that are named are other ones, or gone."""
    found: dict[bytes, bytes | None] = {
        to_stored(f"key{number}"): to_stored(number) for number in range(count)
    }
    found.update({to_stored(key): value for key, value in changed.items()})
    return {key: value for key, value in found.items() if value is not None}


def store(
    folder: Path,
    partitions: Mapping[int, Entries],
    *,
    counter: int = 5,
    term: int = 1,
    epoch: int = 0,
    cluster: str = "c",
) -> Path:
    """The directory of a member that has written one checkpoint of each partition, and nothing since."""
    folder.mkdir()
    identity = IdentityFile(1, f"store-{folder.name}", 1, folder.name, cluster)
    (folder / IDENTITY).write_bytes(msgspec.json.encode(identity))
    for partition, entries in partitions.items():
        held = MapSnapshot(
            "m", [(term, 0)], UpdateCounter(counter).encode(), list(entries), list(entries.values())
        )
        name, data = encode_checkpoint(Snapshot(partition, epoch, [held]), 0, identity.store)
        (folder / name).write_bytes(data)
    return folder


def compared(*folders: Path) -> tuple[list[Finding], list[str], FilesSource]:
    """What a job of two tasks would find."""
    source = FilesSource.of(folders)
    notes = Notes()
    source.check()
    found = [finding for part in range(2) for finding in source.compare(part, 2, notes)]
    return found, notes.damage, source


def test_a_directory_is_read_as_its_member_reads_it(tmp_path: Path) -> None:
    folder = store(tmp_path / "m1", {0: some(), 3: some(2)}, counter=9, epoch=4)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    state = read_store(folder)
    assert (state.label, state.store, sorted(state.copies)) == ("m1", "store-m1", [0, 3])
    held = state.copies[0].maps["m"]
    assert (held.state.entries, held.counter, held.term, state.copies[0].epoch) == (some(), 9, 1, 4)
    assert (state.uncertain, state.damage) == ({}, [])
    assert sorted(read_store(folder, lambda partition: partition == 3).copies) == [3]
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before
    assert checkpoint_bytes(folder) > 0


def test_what_is_no_directory_of_a_member_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no identity"):
        read_store(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_store(tmp_path / "nowhere")
    (tmp_path / IDENTITY).write_text("{")
    with pytest.raises(JournalBroken, match="cannot be read"):
        read_store(tmp_path)


def test_equal_copies_are_equal(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some(), 1: some(3)}) for name in ("m1", "m2", "m3")]
    found, told, _ = compared(*folders)
    assert [finding.verdict for finding in found] == ["equal"] * 4
    assert told == []


def test_a_member_that_stopped_earlier_is_older_and_not_wrong(tmp_path: Path) -> None:
    now = store(tmp_path / "m1", {0: some(9)}, counter=9)
    before = store(tmp_path / "m2", {0: some(5)}, counter=5)
    (finding,), _, _ = compared(before, now)
    assert (finding.member, finding.reference, finding.verdict) == ("m2", "m1", "older")
    assert finding.reason == "4 updates behind"


def test_the_same_updates_with_other_entries_differ_and_the_keys_are_named(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some(), 7: some()}) for name in ("m1", "m2")]
    wrong = store(tmp_path / "m3", {0: some(), 7: some(key1=to_stored("else"), key2=None, new=to_stored(0))})
    found, _, source = compared(*folders, wrong)
    (differs,) = [finding for finding in found if finding.verdict == "differs"]
    assert (differs.partition, differs.map, differs.member) == (7, "m", "m3")
    report = verify_source(source)
    find_keys(report, source.differences)
    told = {(key.text, key.member): key.value_bytes if key.held else None for key in report.keys}
    assert {text for text, _ in told} == {"'key1'", "'key2'", "'new'"}
    assert told["'key2'", "m3"] is None
    assert told["'new'", "m3"] == len(to_stored(0))
    assert len({member for _, member in told}) == 3
    assert (report.differs, report.copies, str(report).splitlines()[-1]) == (
        True,
        4,
        "partition 7, map m: m3 differs: the same updates, other entries",
    )


def test_a_damaged_checkpoint_is_told_and_is_no_difference(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some(), 1: some()}) for name in ("m1", "m2")]
    path = next(folders[1].glob("p00001-*"))
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    found, told, _ = compared(*folders)
    assert [(finding.partition, finding.verdict) for finding in found] == [(0, "equal")]
    assert any("damaged" in line and line.startswith("m2") for line in told)
    # What nobody wants is not even read.
    assert read_store(folders[1], lambda partition: partition == 1).damage != []
    assert read_store(folders[1], lambda partition: partition == 0).damage == []


def test_directories_with_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some()}) for name in ("m1", "m2")]
    states = [read_store(folder) for folder in (folders[0], folders[0], folders[1])]
    assert labels_of(states) == [str(folders[0]), str(folders[0]), "m2"]


def test_directories_of_several_clusters_are_refused(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some()}, cluster=name) for name in ("m1", "m2")]
    with pytest.raises(ConfigError, match="of several clusters: m1, m2"):
        compared(*folders)


# -- comparing


def held(
    where: str,
    counter: int = 5,
    *,
    lineage: tuple[tuple[int, int], ...] = ((1, 0),),
    epoch: int = 0,
    digest: int = 77,
    entries: int = 5,
    doubt: str = "",
) -> ReplicaDigest:
    return ReplicaDigest(where, 0, "m", counter, entries, digest, epoch, lineage, doubt=doubt)


JUDGED: dict[str, tuple[Callable[[], list[ReplicaDigest]], dict[str, str]]] = {
    "one alone": (lambda: [held("a")], {}),
    "the newest is the reference": (
        lambda: [held("a", 4), held("b", 6), held("c", 6)],
        {"a": "older", "c": "equal"},
    ),
    "of three the one that is alone is wrong": (
        lambda: [held("a", digest=1), held("b"), held("c")],
        {"a": "differs", "c": "equal"},
    ),
    "another number of entries": (lambda: [held("a"), held("b", entries=6)], {"b": "differs"}),
    "a term that was superseded": (
        lambda: [held("a", 7, lineage=((1, 0),)), held("b", 6, lineage=((1, 0), (2, 5)))],
        {"a": "older"},
    ),
    "equal counters of two terms": (
        lambda: [held("a", 6, lineage=((1, 0),), digest=1), held("b", 6, lineage=((1, 0), (2, 5)))],
        {"a": "older"},
    ),
    "an earlier life": (lambda: [held("a", 99, epoch=0), held("b", 2, epoch=1)], {"a": "older"}),
    "not everything could be read": (
        lambda: [held("a"), held("b", digest=1, doubt="blocks are lost")],
        {"b": "uncertain"},
    ),
    "being filled, and behind": (
        lambda: [held("a"), held("b", 3, doubt="it was being filled")],
        {"b": "older"},
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_copies_are_judged(case: str) -> None:
    copies, expected = JUDGED[case]
    for order in (copies(), copies()[::-1]):
        found = compare_with_newest(order)
        verdicts = {finding.member: finding.verdict for finding in found}
        if case in ("the newest is the reference", "of three the one that is alone is wrong"):
            # Which of two equal ones is the reference does not matter.
            assert sorted(verdicts.values()) == sorted(expected.values())
            assert verdicts["a"] == expected["a"]
        elif case in ("another number of entries", "not everything could be read"):
            assert list(verdicts.values()) == list(expected.values())
        else:
            assert verdicts == expected


def test_only_so_many_keys_are_listed(tmp_path: Path) -> None:
    left, right = some(50), {key: value + b"!" for key, value in some(50).items()}
    folders = [store(tmp_path / name, {0: entries}) for name, entries in (("m1", left), ("m2", right))]
    found, _, source = compared(*folders)
    differences = source.differences(found)
    assert differences is not None
    assert (len(differences.entries), len(differences.rows(3))) == (50, 6)


def test_a_map_that_no_directory_has_is_refused(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some()}) for name in ("m1", "m2")]
    with pytest.raises(ConfigError, match="no map 'mm' with entries: did you mean 'm'"):
        verify_source(FilesSource.of(folders, ["mm"]))
    with pytest.raises(ConfigError, match="two members, or more"):
        FilesSource.of(folders[:1])


def test_keys_are_readable() -> None:
    assert readable(to_stored(7)) == "7"
    assert readable(b"\x00\x00") == "0x0000"
    assert len(readable(to_stored("x" * 1000))) == 200


# -- zones


def zone_store(
    folder: Path, state: Callable[[StateMachine], object], *, index: int = 8, group: int = 3
) -> Path:
    """The directory of a member with a checkpoint of one replica of zone 1, at this index of its log."""
    store(folder, {})
    machine = StateMachine([group], Settings())
    writes = [ZoneWrites([(name, to_stored("k"), to_stored(1), 0, 0)], group) for name in ("m", "other")]
    machine.apply(ZoneCommand(1000, tuple(writes), counted=True), 7, 2)
    state(machine)
    snapshot = RaftSnapshot(index, 2, Configuration(frozenset({"a", "b"})))
    pieces = [encoded(GroupHead(HardState(2, commit=index), snapshot, ())), *machine.pieces()]
    return group_checkpoint(folder, group, pieces)


def group_checkpoint(folder: Path, group: int, pieces: list[bytes]) -> Path:
    numbers = [number.to_bytes(8, "big") for number in range(len(pieces))]
    taken = Snapshot(group_of(1, group), 0, [MapSnapshot(PIECES, [], b"", numbers, pieces)])
    name, data = encode_checkpoint(taken, 0, f"store-{folder.name}")
    (folder / name).write_bytes(data)
    return folder


def damage(machine: StateMachine) -> None:
    machine.copies[3].maps["m"].state.entries[to_stored("k")] = to_stored(2)


def test_replicas_of_a_zone_at_one_index_are_compared(tmp_path: Path) -> None:
    good = [zone_store(tmp_path / name, lambda machine: None) for name in ("m1", "m2")]
    found, told, _ = compared(*good)
    assert [(finding.map, finding.verdict, finding.zone) for finding in found] == [
        ("m", "equal", "1"),
        ("other", "equal", "1"),
    ]
    assert told == []
    found, _, source = compared(*good, zone_store(tmp_path / "m3", damage))
    (differs,) = [finding for finding in found if finding.verdict == "differs"]
    assert (differs.map, differs.member, differs.index) == ("m", "m3", 8)
    report = verify_source(source)
    find_keys(report, source.differences)
    assert {key.text for key in report.keys} == {"'k'"}


@pytest.mark.rule("raft_partition/Z-6")
def test_a_replica_of_a_zone_without_a_map_that_others_have_differs(tmp_path: Path) -> None:
    good = [zone_store(tmp_path / name, lambda machine: None) for name in ("m1", "m2")]
    found, _, _ = compared(*good, zone_store(tmp_path / "m3", lambda machine: machine.copies[3].forget("m")))
    (differs,) = [finding for finding in found if finding.verdict == "differs"]
    assert (differs.map, differs.member, differs.reason) == (
        "m",
        "m3",
        "other updates at the same index of the log",
    )
    before = zone_store(tmp_path / "m4", lambda machine: machine.copies[3].forget("m"), index=7)
    found, _, _ = compared(good[0], before)
    assert [(finding.map, finding.verdict, finding.reason) for finding in found] == [
        ("m", "older", "1 entries of the log behind"),
        ("other", "equal", ""),
    ]


@pytest.mark.rule("raft_partition/Z-6")
def test_replicas_of_a_zone_with_the_same_updates_of_a_map_are_compared_at_other_indexes(
    tmp_path: Path,
) -> None:
    """The files of a follower mostly end one entry before those of its leader."""
    now = zone_store(tmp_path / "m1", lambda machine: None)
    found, _, _ = compared(now, zone_store(tmp_path / "m2", damage, index=6))
    assert [(finding.map, finding.verdict, finding.reason) for finding in found] == [
        ("m", "differs", "the same updates, other entries"),
        ("other", "equal", ""),
    ]


def test_updates_without_terms_prove_nothing_at_other_indexes(tmp_path: Path) -> None:
    """A map of an older build that was destroyed and filled again may have the same counter."""

    def without_terms(machine: StateMachine) -> None:
        damage(machine)
        machine.copies[3].maps["m"].lineage = []

    now = zone_store(tmp_path / "m1", without_terms)
    before = zone_store(tmp_path / "m2", lambda machine: machine.copies[3].maps["m"].lineage.clear(), index=6)
    found, _, _ = compared(now, before)
    assert [(finding.map, finding.verdict) for finding in found] == [("m", "older"), ("other", "equal")]


@pytest.mark.parametrize("group", [2, 3])
def test_an_unreadable_replica_of_a_zone_is_told_whichever_task_reads_it(tmp_path: Path, group: int) -> None:
    good = zone_store(tmp_path / "m1", lambda machine: None, group=group)
    broken = group_checkpoint(store(tmp_path / "m2", {}), group, [b"no head"])
    found, told, _ = compared(good, broken)
    assert found == []
    assert [line.partition(" of zone 1: ")[0] for line in told] == [f"m2: partition {group}"]
