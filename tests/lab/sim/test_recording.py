"""A recorded run is lived again, step by step; and a step that is another one is named."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.core.events import TimerFired
from holdfast.core.partition_table.table_replication import TableReplication
from holdfast.core.primary_backup.lane import Lane
from holdfast.engine import recording
from holdfast.engine.recording import (
    Begun,
    CallbackBegun,
    CallbackEnded,
    LaneCall,
    Outside,
    Piece,
    RecordBroken,
    Run,
    Step,
    Stepped,
)
from holdfast.engine.replay import Differs, Replay
from holdfast.server.hazelcast.frame_serving import PLAIN_WAYS
from holdfast_lab.cli.main import holdfast_lab
from holdfast_lab.cli.replay import _services
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.damage import harm_again, spoil
from holdfast_lab.sim.run import as_recorded, simulate
from holdfast_lab.sim.world import World

SECOND = 1_000_000_000


def recorded(seed: int, *, zones: bool = False) -> bytes:
    file = io.BytesIO()
    verdict = simulate(seed, journal="mixed", zones=zones, record=file.write)
    assert verdict.ok
    return file.getvalue()


@pytest.fixture(scope="module")
def record() -> bytes:
    """Of members with files, which are restarted, with faults, cuts, change streams, and sessions on the data lane."""
    return recorded(161)


def pieces(record: bytes) -> list[Piece]:
    return list(recording.read(io.BytesIO(record).read))


@pytest.fixture(scope="module")
def whole(record: bytes) -> tuple[Piece, ...]:
    """What the record tells."""
    return tuple(pieces(record))


def replay(found: Iterator[Piece]) -> Replay:
    run = Replay(found, _services, harm_again, PLAIN_WAYS)
    for _ in run.run():
        pass
    return run


def test_a_run_is_lived_again_and_ends_in_the_same(whole: tuple[Piece, ...]) -> None:
    found = list(whole)
    run = replay(iter(found))
    lives = [piece for piece in found if isinstance(piece, Begun)]
    last = {piece.life: piece.digest for piece in found if isinstance(piece, Stepped)}
    assert run.hashes() == {f"{one.life} {one.name}": last.get(one.life, b"").hex() for one in lives}
    assert len(lives) > 5, "a process that is started again has a life of its own"
    assert sum(one.restored is not None for one in lives) > 3
    assert any(one.restored and one.restored.copies for one in lives), "files told something"
    assert sum(isinstance(piece, LaneCall) for piece in found) > 500
    kinds = {piece.event for piece in found if isinstance(piece, Step)}
    assert {"ClientRequest", "CutRequested", "ChangesAsked", "Durable", "Heard", "ListenerAdded"} <= kinds


@pytest.mark.slow
def test_a_run_without_files_too() -> None:
    assert replay(iter(pieces(recorded(3)))).steps > 1000


@pytest.mark.slow
def test_a_run_with_a_zone_too() -> None:
    """What an operator and sessions want of the zone are events like all others."""
    found = pieces(recorded(5, zones=True))
    kinds = {piece.event for piece in found if isinstance(piece, Step)}
    assert {"ActionRequested", "ZoneBatches"} <= kinds
    assert replay(iter(found)).steps > 1000


@pytest.mark.slow
def test_to_record_changes_nothing_of_the_run() -> None:
    assert simulate(3, journal="mixed").trace_hash == simulate(3, journal="mixed", record=len).trace_hash


def test_what_the_world_has_damaged_is_damaged_again() -> None:
    world = World(1, None)
    file = io.BytesIO()
    world.recorder = recording.Recorder(file.write, world, {})
    cluster = Cluster(world, simulated_settings(1, 2, anti_entropy_ms=500), 2)
    cluster.start(0, bootstrap=True)
    cluster.start(1)
    world.run_until(20 * SECOND)
    driver = cluster.living()[0].driver
    for number in range(40):
        driver.enter()
        for copy in driver.lane.serving:
            if copy is not None:
                driver.lane.set(copy, "m", b"%d" % number, b"value", 0, 0, 0)
        driver.lane.close_batch(lambda known: None)
        driver.leave_lane()
        world.run_until(world.now_ns + SECOND // 50)
    assert spoil(cluster.living(), [], random.Random(1)) is not None
    world.run_until(world.now_ns + 5 * SECOND)
    found = pieces(file.getvalue())
    assert sum(isinstance(piece, Outside) for piece in found) == 1
    replay(iter(found))
    with pytest.raises(Differs):
        replay(piece for piece in found if not isinstance(piece, Outside))


@pytest.mark.parametrize(
    ("seed", "terms"),
    [
        (1, {"without": frozenset({"copy-complete", "fence"})}),
        (96, {"lies": frozenset({"ttl-quarter", "put-all-drops"})}),
    ],
)
def test_what_was_off_and_who_lied_is_so_again(seed: int, terms: dict[str, frozenset[str]]) -> None:
    file = io.BytesIO()
    assert not simulate(seed, record=file.write, **terms).ok
    found = pieces(file.getvalue())
    assert isinstance(found[0], Run)
    ((what, names),) = terms.items()
    assert found[0].told[what] == ", ".join(sorted(names))
    with as_recorded(found[0].told):
        assert replay(iter(found)).steps > 100
    with pytest.raises(Differs):
        replay(iter(found))


@pytest.mark.parametrize("what", ["without", "lies"])
def test_a_rule_or_lie_that_nobody_knows_ends_with_a_message(tmp_path: Path, what: str) -> None:
    path = tmp_path / "run"
    with path.open("wb") as file:
        recording.Recorder(file.write, World(1, None), {what: "fence-of-old"})
    result = CliRunner().invoke(holdfast_lab, ["replay", str(path)])
    assert (result.exit_code, result.exception.__class__) == (1, SystemExit)
    assert "fence-of-old" in result.output


def test_the_command_writes_down_a_run_with_lies_and_lives_it_again(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    options = [
        "--seed",
        "1",
        "--without",
        "copy-complete",
        "--lie",
        "get-absent",
        "--quiet",
        "--record",
        path,
    ]
    assert CliRunner().invoke(holdfast_lab, ["simulate", *options]).exit_code == 1
    result = CliRunner().invoke(holdfast_lab, ["replay", path])
    assert result.exit_code == 0, result.output
    assert "without: copy-complete" in result.output
    assert "lies: get-absent" in result.output


# -- what is another one


def changed(found: list[Piece], at: int, **fields: object) -> Iterator[Piece]:
    return iter([*found[:at], msgspec.structs.replace(found[at], **fields), *found[at + 1 :]])


def number_of(found: list[Piece], at: int) -> int:
    """The number of this step: calls of the data lane are counted, too."""
    return sum(isinstance(piece, Step | LaneCall) for piece in found[: at + 1])


def test_an_event_that_is_another_one_is_noticed_at_its_step(whole: tuple[Piece, ...]) -> None:
    found = list(whole)
    at = [i for i, one in enumerate(found) if isinstance(one, Step) and one.event == "ClientRequest"][20]
    step = found[at]
    assert isinstance(step, Step)
    other = recording.fields_of(TimerFired("sweep"))
    with pytest.raises(Differs, match=rf"step {number_of(found, at)} \({'host'}"):
        replay(changed(found, at, event="TimerFired", fields=other))


@pytest.mark.parametrize("what", ["digest", "left out", "lane call"])
def test_whatever_is_changed_is_noticed(whole: tuple[Piece, ...], what: str) -> None:
    found = list(whole)
    if what == "digest":
        at = [i for i, one in enumerate(found) if isinstance(one, Stepped)][300]
        with pytest.raises(Differs, match=f"step {number_of(found, at)} .*its effects differ now"):
            replay(changed(found, at, digest=b"other"))
    elif what == "left out":
        at = [i for i, one in enumerate(found) if isinstance(one, Stepped)][300]
        with pytest.raises(Differs, match=f"step {number_of(found, at)} .*it is over now"):
            replay(iter([*found[:at], *found[at + 1 :]]))
    else:
        at = [i for i, one in enumerate(found) if isinstance(one, LaneCall) and one.call == "set"][50]
        call = found[at]
        assert isinstance(call, LaneCall)
        with pytest.raises(Differs):
            replay(iter([*found[:at], *found[at + 1 :]]))


def fewer_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableReplication, "on_stored", lambda *given: None)


def lost_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lane, "remove", lambda *given: None)


@pytest.mark.parametrize("mutate", [fewer_acks, lost_removes])
def test_other_code_of_the_member_is_noticed(
    whole: tuple[Piece, ...], monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)
    with pytest.raises(Differs, match="step "):
        replay(iter(whole))


# -- the file


def test_a_file_that_is_no_record_ends_with_a_message(record: bytes, tmp_path: Path) -> None:
    head = len(recording.MAGIC)
    newer = recording._encoder.encode(Run(recording.FORMAT + 1, {}))
    of_newer = recording.MAGIC + recording._HEAD.pack(len(newer), recording.crc32(newer)) + newer
    flipped = bytearray(record)
    flipped[len(record) // 2] ^= 1
    strangers = {
        b"": "no record of a run",
        b"PK\x03\x04 something else": "no record of a run",
        record[:head]: "the record is empty",
        record[:-3]: "ends within a piece",
        record[: head + 3]: "ends within a piece",
        bytes(flipped): "damaged at byte",
        of_newer: f"of format {recording.FORMAT + 1}",
    }
    for number, (data, words) in enumerate(strangers.items()):
        path = tmp_path / str(number)
        path.write_bytes(data)
        result = CliRunner().invoke(holdfast_lab, ["replay", str(path)])
        assert (result.exit_code, result.exception.__class__) == (1, SystemExit), words
        assert words in result.output


@pytest.mark.parametrize("kind", [Step, Stepped, LaneCall, CallbackBegun, CallbackEnded])
def test_damage_is_named_wherever_it_is(record: bytes, whole: tuple[Piece, ...], kind: type[Piece]) -> None:
    """Within what a session was told, too, which is read in the middle of a step."""
    at, offset = 0, len(recording.MAGIC)
    for number, piece in enumerate(whole):
        length, _ = recording._HEAD.unpack_from(record, offset)
        if isinstance(piece, kind) and number > 2_000:
            at = offset + recording._HEAD.size + length // 2
            break
        offset += recording._HEAD.size + length
    damaged = bytearray(record)
    damaged[at] ^= 1
    with pytest.raises(RecordBroken, match="damaged at byte"):
        replay(recording.read(io.BytesIO(damaged).read))


@pytest.mark.parametrize("change", [{"event": "Nonsense"}, {"fields": b"\xc1"}, {"life": 99}])
def test_a_step_that_makes_no_sense_ends_with_a_message(
    whole: tuple[Piece, ...], change: dict[str, object]
) -> None:
    found = list(whole)
    at = [i for i, one in enumerate(found) if isinstance(one, Step) and one.event == "TimerFired"][5]
    with pytest.raises(RecordBroken):
        replay(changed(found, at, **change))


@pytest.mark.slow
def test_the_hash_depends_on_no_order_of_sets(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(record)
    told = {
        subprocess.run(
            [sys.executable, "-m", "holdfast_lab", "replay", str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


# -- the story


@pytest.mark.slow
def test_the_story_of_one_member_and_one_partition(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(record)

    def told(*options: str) -> list[str]:
        result = CliRunner().invoke(holdfast_lab, ["replay", str(path), *options])
        assert result.exit_code == 0, result.output
        return result.output.splitlines()

    of_member = told("--member", "host1#2")
    steps = [line for line in of_member if line[:10].strip().replace(".", "").isdigit()]
    assert steps and all(" host1#2 " in line for line in steps)
    assert any("applies p1 " in line for line in steps)
    assert any("is in view" in line for line in steps)
    assert any("a client asks for" in line for line in steps)
    of_partition = told("--partition", "1")
    assert any("applies p1 " in line for line in of_partition)
    assert not any("applies p0 " in line or "in p2" in line for line in of_partition)
    assert any("a session on the data lane: set in p1" in line for line in of_partition)
    assert of_member[-1] == of_partition[-1]
    assert "all as they were" in of_member[-1]


@pytest.mark.slow
def test_a_member_that_was_not_there_is_named(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(record)
    for options in (["--member", "nobody"], ["--partition", "77"]):
        result = CliRunner().invoke(holdfast_lab, ["replay", str(path), *options])
        assert result.exit_code not in (0, 1)
        assert options[1].strip() in result.output
