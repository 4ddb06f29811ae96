"""`holdfast journal` on directories as members leave them, and as accidents leave those."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.wire.journals import STORE, Written

from holdfast.cli.journal import plain
from holdfast.cli.main import holdfast
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    MapSnapshot,
    Meta,
    Seen,
    Snapshot,
    TableAssignments,
    Wrote,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.views import View
from holdfast.wire.checkpoint import encode_checkpoint
from holdfast.wire.values import to_stored


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(holdfast, ["journal", *map(str, arguments)], catch_exceptions=False)


def wrote(partition: int, name: str, *cells: tuple[int, object, object]) -> Entry:
    records = [Record(name, n, Change.SET, to_stored(key), to_stored(value)) for n, key, value in cells]
    return Wrote(partition, 2, records)


def member_directory(directory: Path) -> Written:
    """A member with two segments, two checkpoints, and what it says of itself."""
    counter = UpdateCounter(3).encode()
    keys = [to_stored(number) for number in range(5)]
    first = Snapshot(17, 0, [MapSnapshot("customers", [(2, 0)], counter, keys, keys)])
    second = Snapshot(3, 0, [MapSnapshot("orders", [(2, 0)], counter, keys[:2], keys[:2])])
    written = Written()
    written.begin()
    written.block(
        Meta(STORE, 1, "c1"), TableAssignments([(17, Assignment(4, ("a", None)))]), Seen(View(1, "c1", []))
    )
    written.block(Began(17, 0), wrote(17, "customers", (1, "Ada", 1), (2, "Bob", "x" * 100)))
    for snapshot, lsn in ((first, 2), (second, 2)):
        name, data = encode_checkpoint(snapshot, lsn, STORE)
        (directory / name).write_bytes(data)
        written.block(Checkpointed(snapshot.partition, lsn, name))
    written.begin()
    written.block(wrote(3, "orders", (3, {"id": 1}, [1, 2])))
    removal = Record("customers", 3, Change.REMOVE, to_stored("Bob"))
    written.block(Wrote(17, 2, [removal]), Dropped(5, "orders"))
    written.block()
    written.fill(1000)
    save(directory, written)
    (directory / "identity.json").write_text(json.dumps({"store": STORE, "incarnation": 4, "member": "one"}))
    return written


def save(directory: Path, written: Written) -> None:
    for name, data in written.files.items():
        (directory / name).write_bytes(data)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


# -- list


def test_list(tmp_path: Path) -> None:
    member_directory(tmp_path)
    told = run("list", tmp_path)
    assert told.exit_code == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in told.output.splitlines()]
    assert lines[0] == f"store {STORE} member one incarnation 4"
    assert any(line.startswith("j000000000001.seg 1 4 4 ") for line in lines)
    assert any(line.startswith("j000000000005.seg 5 7 3 ") for line in lines)
    assert any(line.startswith("17 2 5 ") and line.endswith("customers") for line in lines)
    assert any(line.startswith("3 2 2 ") and line.endswith("orders") for line in lines)
    assert "2 checkpoints with 7 entries" in lines[-1]


def test_list_for_scripts(tmp_path: Path) -> None:
    written = member_directory(tmp_path)
    told = json.loads(run("list", tmp_path, "--json").output)
    assert (told["store"], told["identity"]["incarnation"], told["next_lsn"]) == (STORE, 4, 8)
    assert [(each["first_lsn"], each["last_lsn"], each["blocks"]) for each in told["segments"]] == [
        (1, 4, 4),
        (5, 7, 3),
    ]
    assert [each["bytes"] for each in told["segments"]] == [len(data) for data in written.files.values()]
    assert told["segments"][1]["used_bytes"] == told["segments"][1]["bytes"] - 1000
    assert [(each["partition"], each["lsn"], each["entries"]) for each in told["checkpoints"]] == [
        (3, 2, 2),
        (17, 2, 5),
    ]
    for each in told["checkpoints"]:
        assert each["bytes"] == (tmp_path / each["file"]).stat().st_size
    assert (told["damage"], told["cut"]) == ([], None)


def test_list_tells_of_what_it_cannot_read(tmp_path: Path) -> None:
    written = member_directory(tmp_path)
    flip(tmp_path / "j000000000001.seg", written.places[2][1] + 80)
    checkpoint = next(tmp_path.glob("p00003*"))
    checkpoint.write_bytes(b"nothing")
    told = run("list", tmp_path)
    assert told.exit_code == 1
    assert "blocks 2 to 2 are lost" in told.output
    assert "not a checkpoint" in told.output
    plainly = json.loads(run("list", tmp_path, "--json").output)
    assert "error" in plainly["checkpoints"][0]
    assert len(plainly["damage"]) == 1


# -- verify


def test_verify_finds_nothing_in_a_sound_directory(tmp_path: Path) -> None:
    member_directory(tmp_path)
    told = run("verify", tmp_path)
    assert told.exit_code == 0
    assert told.output == "7 blocks and 2 checkpoints with 7 entries are in order\n"
    assert json.loads(run("verify", tmp_path, "--json").output) == {
        "blocks": 7,
        "checkpoints": 2,
        "entries": 7,
        "damage": [],
        "cut": None,
    }


def test_verify_finds_each_damaged_file(tmp_path: Path) -> None:
    member_directory(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        if path.suffix == ".json":
            continue
        before = path.read_bytes()
        for place in range(0, len(before) - 1200 if path.suffix == ".seg" else len(before), 37):
            flip(path, place)
            told = run("verify", tmp_path)
            assert told.exit_code == 1, (path.name, place)
            assert path.name in told.output.splitlines()[0]
            path.write_bytes(before)
        path.unlink()
        # The oldest segments go when nobody needs them any more, and nothing is known of any after the last.
        assert run("verify", tmp_path).exit_code == (0 if path.suffix == ".seg" else 1), path.name
        path.write_bytes(before)
    assert run("verify", tmp_path).exit_code == 0


def test_a_cut_end_is_in_order(tmp_path: Path) -> None:
    written = member_directory(tmp_path)
    name, start, _ = written.places[7]
    (tmp_path / name).write_bytes(written.files[name][: start + 30])
    told = run("verify", tmp_path)
    assert told.exit_code == 0
    assert f"{name}, offset {start}: cut before block 7" in told.output
    assert json.loads(run("verify", tmp_path, "--json").output)["cut"].startswith(name)


def test_verify_knows_what_the_journal_speaks_of(tmp_path: Path) -> None:
    """A checkpoint that is missing, unless the partition is held no more; and one that knows more than the journal."""
    written = member_directory(tmp_path)
    next(tmp_path.glob("p00017*")).unlink()
    told = run("verify", tmp_path)
    assert told.exit_code == 1
    assert "missing; the journal says that partition 17 is in it" in told.output
    name = written.chain.segment
    del written.files[name][-1000:]
    written.block(Dropped(17))
    written.block()
    save(tmp_path, written)
    assert run("verify", tmp_path).exit_code == 0
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    told = run("verify", tmp_path)
    assert told.exit_code == 1
    assert "the journal ends before block 1, and a checkpoint holds what block 2 says" in told.output


def test_files_of_another_store_are_told(tmp_path: Path) -> None:
    member_directory(tmp_path)
    (tmp_path / "identity.json").write_text(json.dumps({"store": "another"}))
    told = run("verify", tmp_path)
    assert told.exit_code == 1
    assert f"this is a segment of another store, {STORE}" in told.output
    assert f"a checkpoint of another store, {STORE}" in told.output
    for text in ("[]", "not json", '{"store": 7}'):
        (tmp_path / "identity.json").write_text(text)
        assert run("verify", tmp_path).exit_code == 0


# -- print


def test_print(tmp_path: Path) -> None:
    member_directory(tmp_path)
    told = run("print", tmp_path)
    assert told.exit_code == 0
    lines = [" ".join(line.split()) for line in told.output.splitlines()]
    assert lines[0].startswith(f'1 store store="{STORE}" incarnation=1')
    assert lines[1].startswith('1 row partition 17 version=4 replicas=["a", null]')
    assert lines[2].startswith("1 view number=1 members=[]")
    assert lines[3:5] == [
        "2 began partition 17 epoch=0",
        '2 set partition 17 term 2 customers #1 key="Ada" value=1',
    ]
    assert lines[5].startswith('2 set partition 17 term 2 customers #2 key="Bob" value="xxxx')
    assert lines[5].endswith("…")
    assert lines[6].startswith('3 checkpoint partition 17 upto=2 file="p00017-')
    assert lines[8:] == [
        '5 set partition 3 term 2 orders #3 key={"id": 1} value=[1, 2]',
        '6 remove partition 17 term 2 customers #3 key="Bob"',
        "6 dropped partition 5 orders",
        "7 seal",
    ]


def test_print_only_some(tmp_path: Path) -> None:
    member_directory(tmp_path)

    def lines(*arguments: str) -> list[tuple[int, str]]:
        told = run("print", tmp_path, "--json", *arguments)
        assert told.exit_code == 0
        return [(line["lsn"], line["kind"]) for line in map(json.loads, told.output.splitlines())]

    assert lines("--partition", "17") == [
        (1, "row"),
        (2, "began"),
        (2, "set"),
        (2, "set"),
        (3, "checkpoint"),
        (6, "remove"),
    ]
    assert lines("--map", "orders") == [(5, "set"), (6, "dropped")]
    assert lines("--map", "orders", "--partition", "3") == [(5, "set")]
    assert lines("--from", "6") == [(6, "remove"), (6, "dropped"), (7, "seal")]
    assert lines("--from", "4", "--limit", "2") == [(4, "checkpoint"), (5, "set")]
    assert lines("--from", "99") == []


def test_print_goes_on_after_damage(tmp_path: Path) -> None:
    written = member_directory(tmp_path)
    flip(tmp_path / "j000000000001.seg", written.places[2][1] + 80)
    told = run("print", tmp_path, "--json")
    assert told.exit_code == 1
    assert "blocks 2 to 2 are lost" in told.stderr
    assert [json.loads(line)["lsn"] for line in told.stdout.splitlines()] == [1, 1, 1, 3, 4, 5, 6, 6, 7]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (to_stored(b"ab"), {"bytes": "YWI="}),
        (to_stored(None), None),
        (to_stored(2**80), 2**80),
        (b"\x00\x00\x00\x07xy", {"type": 7, "bytes": "eHk="}),
        (b"", {"bytes": ""}),
        (b"\xff\xff\xff\xf5\x00\x00\x00\x01\xff", {"bytes": "////9QAAAAH/"}),
        (b"\xff\xff\xff\xf9x", {"bytes": "////+Xg="}),
        (b"\xff\xff\xff\xfc", {"bytes": "/////A=="}),
    ],
)
def test_keys_and_values_are_shown_whatever_they_are(stored: bytes, shown: object) -> None:
    assert plain(stored) == shown
    json.dumps(plain(stored))


def test_very_large_integers_are_shown() -> None:
    assert set(plain(to_stored(1 << 20_000))) == {"type", "bytes"}


# -- wrong calls


@pytest.mark.parametrize("command", ["list", "verify", "print"])
def test_a_wrong_directory(command: str, tmp_path: Path) -> None:
    told = run(command, tmp_path / "none")
    assert told.exit_code == 2
    assert told.output.endswith("none cannot be read: No such file or directory\n")
    (tmp_path / "file").touch()
    assert run(command, tmp_path / "file").exit_code == 2
    (tmp_path / "inner").mkdir()
    told = run(command, tmp_path)
    assert told.exit_code == 2
    assert "holds no journal" in told.output
    assert "persistence.directory" in told.output
    member_directory(tmp_path / "inner")
    told = run(command, tmp_path)
    assert f"Did you mean {tmp_path / 'inner'}?" in told.output
    assert len(told.output.splitlines()) == 1


def test_wrong_options(tmp_path: Path) -> None:
    member_directory(tmp_path)
    for wrong in (["--limit", "0"], ["--from", "0"], ["--partition", "-1"]):
        assert run("print", tmp_path, *wrong).exit_code == 2


def test_a_cut_is_shown_by_its_id(tmp_path: Path) -> None:
    written = member_directory(tmp_path)
    written.begin()
    written.block(Wrote(17, 2, [Record("customers", 4, Change.PIN, bytes(range(16)), ttl_ms=5000)]))
    save(tmp_path, written)
    line = json.loads(run("print", tmp_path, "--json", "--partition", "17").stdout.splitlines()[-1])
    assert (line["kind"], line["cut"], line["ttl_ms"]) == ("pin", bytes(range(16)).hex(), 5000)
