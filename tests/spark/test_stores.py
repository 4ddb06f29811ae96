"""What copies in directories hold, how it is compared, and what is no alarm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark")

from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.engine.restore import IDENTITY, IdentityFile
from holdfast.errors import ConfigError, JournalBroken
from holdfast.spark.files.stores import checkpoint_bytes, read_store
from holdfast.spark.pipeline.audit_copies import _Files, _unlike
from holdfast.spark.pipeline.loose_copies import CopyFinding, Held, compare_copies, differing_keys, readable
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


def audited(*folders: Path) -> tuple[list[CopyFinding], list[str], _Files]:
    """What a job of two tasks would find."""
    source = _Files(tuple(str(folder) for folder in folders), ())
    told: list[str] = []

    def tell(kind: str, text: str) -> None:
        if kind == "damage":
            told.append(text)

    groups = [group for part in range(2) for _, group in source.compared((part, 2), tell)]
    return [finding for group in groups for finding in group], told, source


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
    found, told, _ = audited(*folders)
    assert [finding.verdict for finding in found] == ["equal"] * 4
    assert told == []


def test_a_member_that_stopped_earlier_is_older_and_not_wrong(tmp_path: Path) -> None:
    now = store(tmp_path / "m1", {0: some(9)}, counter=9)
    before = store(tmp_path / "m2", {0: some(5)}, counter=5)
    (finding,), _, _ = audited(before, now)
    assert (finding.where, finding.reference, finding.verdict) == ("m2", "m1", "older")
    assert finding.why == "4 updates behind"


def test_the_same_updates_with_other_entries_differ_and_the_keys_are_named(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some(), 7: some()}) for name in ("m1", "m2")]
    wrong = store(tmp_path / "m3", {0: some(), 7: some(key1=to_stored("else"), key2=None, new=to_stored(0))})
    found, _, source = audited(*folders, wrong)
    (differs,) = [finding for finding in found if finding.verdict == "differs"]
    assert (differs.partition, differs.map, differs.where) == (7, "m", "m3")
    keys = source.keys([differs], 100)
    told = {(key.text, key.where): key.value_bytes if key.held else None for key in keys}
    assert {text for text, _ in told} == {"'key1'", "'key2'", "'new'"}
    assert told["'key2'", "m3"] is None
    assert told["'new'", "m3"] == len(to_stored(0))
    assert len({where for _, where in told}) == 2


def test_a_damaged_checkpoint_is_told_and_is_no_difference(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some(), 1: some()}) for name in ("m1", "m2")]
    path = next(folders[1].glob("p00001-*"))
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    found, told, _ = audited(*folders)
    assert [(finding.partition, finding.verdict) for finding in found] == [(0, "equal")]
    assert any("damaged" in line and line.startswith("m2") for line in told)
    # What nobody wants is not even read.
    assert read_store(folders[1], lambda partition: partition == 1).damage != []
    assert read_store(folders[1], lambda partition: partition == 0).damage == []


def test_directories_with_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some()}) for name in ("m1", "m2")]
    states = [read_store(folder) for folder in (folders[0], folders[0], folders[1])]
    assert _unlike(states) == [str(folders[0]), str(folders[0]), "m2"]


def test_directories_of_several_clusters_are_refused(tmp_path: Path) -> None:
    folders = [store(tmp_path / name, {0: some()}, cluster=name) for name in ("m1", "m2")]
    with pytest.raises(ConfigError, match="of several clusters: m1, m2"):
        audited(*folders)


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
) -> Held:
    return Held(where, 0, "m", epoch, counter, lineage, entries, digest, doubt)


JUDGED: dict[str, tuple[Callable[[], list[Held]], dict[str, str]]] = {
    "one alone": (lambda: [held("a")], {}),
    "never written": (lambda: [held("a", 0, entries=0), held("b", 0, entries=0)], {}),
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
        found = compare_copies(order)
        verdicts = {finding.where: finding.verdict for finding in found}
        if case in ("the newest is the reference", "of three the one that is alone is wrong"):
            # Which of two equal ones is the reference does not matter.
            assert sorted(verdicts.values()) == sorted(expected.values())
            assert verdicts["a"] == expected["a"]
        elif case in ("another number of entries", "not everything could be read"):
            assert list(verdicts.values()) == list(expected.values())
        else:
            assert verdicts == expected


def test_only_so_many_keys_are_told() -> None:
    left, right = some(50), {key: value + b"!" for key, value in some(50).items()}
    found, count = differing_keys(0, "m", {"a": left, "b": right}, 3)
    assert (len(found), count) == (6, 50)
    assert differing_keys(0, "m", {"a": left, "b": dict(left)}, 3) == ([], 0)


def test_keys_are_readable() -> None:
    assert readable(to_stored(7)) == "7"
    assert readable(b"\x00\x00") == "0x0000"
    assert len(readable(to_stored("x" * 1000))) == 200
