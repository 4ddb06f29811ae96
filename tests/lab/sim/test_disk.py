"""The simulated disk: what a reader sees, what a kill keeps, what a power cut may lose; and that a seed decides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from holdfast.core.model.ids import MILLISECOND, SECOND, Address
from holdfast.engine.ports import Create, Deed, Disk, DiskFailed, DiskFull, Put, Remove, Rename, Sync, Write
from holdfast_lab.sim.disk import SECTOR, MountedDisk, SimDisk
from holdfast_lab.sim.world import Process, World

OLD, NEW = b"o", b"n"


@dataclass
class Host:
    """One host with its disk, and one process after the other."""

    seed: int = 1
    answers: list[tuple[str, Exception | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.seed, None)
        self.disk = SimDisk(self.world, "host0", f"{self.seed}")
        self.boot()

    def boot(self) -> MountedDisk:
        self.process = Process(self.world, "host0#1", Address("host0", 1))
        self.door = self.disk.mount(self.process)
        return self.door

    def submit(self, name: str, *deeds: Deed, line: str = "journal") -> None:
        self.door.submit(deeds, lambda error: self.answers.append((name, error)), line=line)

    def run(self, seconds: float = 10) -> None:
        self.world.run_until(self.world.now_ns + round(seconds * SECOND))
        assert not self.world.failures, self.world.failures

    def do(self, *deeds: Deed) -> Exception | None:
        """Carry these out, and say how it ended."""
        self.submit("done", *deeds)
        self.run()
        name, error = self.answers.pop()
        assert name == "done"
        return error

    def power_cut(self) -> MountedDisk:
        self.process.crash()
        self.disk.power_cut()
        return self.boot()

    def kill(self) -> MountedDisk:
        self.process.crash()
        return self.boot()


def put(name: str, data: bytes) -> Put:
    return Put(lambda: (name, data))


def written(seed: int, *, sectors: int = 4) -> Host:
    """A file of old sectors, durable, over which new ones were written without a sync."""
    host = Host(seed)
    old = Write("a", 0, OLD * SECTOR * sectors)
    assert host.do(Create("a", SECTOR * sectors), old, Sync("a")) is None
    assert host.do(Write("a", 0, NEW * SECTOR * sectors)) is None
    return host


def test_it_is_the_door() -> None:
    door: Disk = Host().door
    assert door.names() == []


def test_what_was_done_is_seen() -> None:
    host = Host()
    host.submit("all", Create("b", 1000), Write("b", 10, b"xyz"), Sync("b"), put("a", b"whole"))
    assert host.door.names() == []
    host.run()
    assert host.answers == [("all", None)]
    assert host.door.names() == ["a", "b"]
    assert host.door.size("b") == 1000
    assert host.door.read("b", 9, 5) == b"\0xyz\0"
    assert host.door.read("a") == b"whole"
    assert host.door.read("a", 3, 100) == b"le"
    assert host.do(Remove("a"), Remove("never")) is None
    assert host.door.names() == ["b"]
    with pytest.raises(FileNotFoundError):
        host.door.read("a")


def test_a_line_keeps_its_order_and_two_lines_are_independent() -> None:
    host = Host()
    host.disk.slowness = 1000
    host.submit("create", Create("s", 64))
    host.disk.slowness = 1
    for number in range(20):
        host.submit(f"j{number}", Write("s", number, b"%d" % (number % 10)))
    host.submit("empty")
    host.submit("last", Write("s", 20, b"x"))
    host.submit("checkpoint", put("c", b"c"), line="checkpoint")
    host.run()
    journal = [name for name, _ in host.answers if name != "checkpoint"]
    assert journal == ["create", *(f"j{number}" for number in range(20)), "empty", "last"]
    assert host.door.read("s", 0, 21) == b"01234567890123456789x"
    assert host.answers[0][0] == "checkpoint"


def test_nothing_is_done_or_told_before_submit_returns() -> None:
    host = Host()
    host.submit("first", put("a", b"1"))
    assert host.answers == []
    assert host.disk.contents() == {}


def test_a_pause_holds_up_answers_and_the_next_deed_but_not_their_order() -> None:
    host = Host()
    for number in range(3):
        host.submit(f"{number}", put(f"f{number}", b"x"))
    host.process.awake_at_ns = 5 * SECOND
    host.world.after(4 * SECOND, lambda: setattr(host.process, "awake_at_ns", 8 * SECOND))
    host.run(7)
    assert host.answers == []
    assert host.door.names() == ["f0"]
    host.run(7)
    assert [name for name, _ in host.answers] == ["0", "1", "2"]


def test_a_kill_keeps_what_was_done_though_it_was_not_synced() -> None:
    for seed in range(20):
        host = written(seed)
        host.submit("never", put("b", b"b"), put("c", b"c"))
        host.answers.clear()
        door = host.kill()
        assert door.read("a") == NEW * SECTOR * 4
        assert "c" not in door.names()
        host.run()
        assert host.answers == [], "the dead are told nothing"
        assert "c" not in door.names()


def test_a_power_cut_keeps_any_part_of_what_was_not_synced_sector_by_sector() -> None:
    found = set()
    for seed in range(200):
        data = written(seed).power_cut().read("a")
        sectors = [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]
        assert all(sector in (OLD * SECTOR, NEW * SECTOR) for sector in sectors)
        found.add("".join(chr(sector[0]) for sector in sectors))
    assert {"oooo", "nnnn", "nnoo", "oonn", "onon"} <= found


def test_a_power_cut_may_keep_a_state_that_was_overwritten() -> None:
    found = set()
    for seed in range(60):
        host = written(seed, sectors=1)
        assert host.do(Write("a", 0, b"z" * SECTOR)) is None
        found.add(host.power_cut().read("a")[:1])
    assert found == {b"o", b"n", b"z"}


def test_a_power_cut_keeps_what_was_synced() -> None:
    for seed in range(50):
        host = written(seed)
        assert host.do(Sync("a")) is None
        assert host.power_cut().read("a") == NEW * SECTOR * 4


def test_files_that_were_made_are_there_after_a_power_cut() -> None:
    for seed in range(20):
        host = Host(seed)
        assert host.do(Create("a", 700), put("b", b"bytes"), put("b", b"others")) is None
        door = host.power_cut()
        assert {name: door.read(name) for name in door.names()} == {"a": bytes(700), "b": b"others"}


def test_a_put_that_was_under_way_is_there_wholly_or_not_at_all() -> None:
    found = set()
    for seed in range(60):
        host = Host(seed)
        assert host.do(put("a", OLD * 2000)) is None
        host.submit("never", put("a", NEW * 2000))
        host.run(0.001)
        found.add((host.kill() if seed % 2 else host.power_cut()).read("a"))
    assert found == {OLD * 2000, NEW * 2000}


def test_a_create_that_was_under_way_may_be_there_in_part() -> None:
    found = set()
    for seed in range(60):
        host = Host(seed)
        host.submit("never", Create("a", 4096))
        door = host.power_cut()
        found.add(door.size("a") if door.names() else -1)
        assert not door.names() or not any(door.read("a"))
    assert {-1, 4096} < found


def test_a_write_that_was_under_way_is_there_in_part() -> None:
    found = set()
    for seed in range(60):
        host = Host(seed)
        assert host.do(Create("a", 1000), Write("a", 0, OLD * 1000)) is None
        host.submit("never", Write("a", 0, NEW * 1000))
        found.add(host.kill().read("a").count(NEW))
    assert {0, 1000} < found


def test_a_growing_write_is_cut_with_zeros_where_sectors_are_missing() -> None:
    for seed in range(100):
        host = Host(seed)
        assert host.do(put("a", b"begin"), Write("a", 5, NEW * 3000)) is None
        data = host.power_cut().read("a")
        assert data[:5] == b"begin"
        assert set(data[5:]) <= {0, NEW[0]}


def test_a_removed_file_may_be_back_but_not_when_another_was_made_since() -> None:
    found = set()
    for seed in range(30):
        host = Host(seed)
        assert host.do(put("a", b"a"), Remove("a")) is None
        found.add(tuple(host.power_cut().names()))
        assert host.do(Remove("a"), put("b", b"b")) is None
        assert host.power_cut().names() == ["b"]
    assert found == {(), ("a",)}


def test_a_file_that_was_renamed_has_its_new_name_after_a_power_cut() -> None:
    found = set()
    for seed in range(40):
        host = Host(seed)
        assert (
            host.do(put("a", b"a"), put("x", b"x"), Remove("x"), Rename("a", "b"), Rename("a", "b")) is None
        )
        assert host.power_cut().names() == ["b"]
        host.submit("never", Rename("b", "c"))
        door = host.kill() if seed % 2 else host.power_cut()
        (name,) = door.names()
        assert door.read(name) == b"a"
        found.add(name)
    assert found == {"b", "c"}


def test_a_failed_sync_leaves_unknown_what_no_later_sync_makes_durable() -> None:
    found = set()
    for seed in range(60):
        host = written(seed)
        host.disk.fail_armed(lambda: True)
        host.submit("sync", Sync("a"), put("b", b"never"))
        host.run()
        assert [(name, type(error)) for name, error in host.answers] == [("sync", DiskFailed)]
        assert host.door.names() == ["a"]
        assert host.door.read("a") == NEW * SECTOR * 4
        host.answers.clear()
        assert host.do(Sync("a")) is None, "it fails once"
        data = host.power_cut().read("a")
        found.add("".join(chr(data[at]) for at in range(0, len(data), SECTOR)))
    assert {"oooo", "nnnn"} < found


def test_a_failure_is_asked_for_when_it_strikes() -> None:
    host = written(1)
    host.disk.fail_armed(lambda: False)
    assert host.do(Sync("a")) is None


def test_a_full_disk_refuses_new_files_and_growth_but_not_what_was_reserved() -> None:
    host = Host()
    assert host.do(Create("a", 1000)) is None
    host.disk.full = True
    assert isinstance(host.do(Create("b", 10)), DiskFull)
    assert isinstance(host.do(put("c", b"c")), DiskFull)
    assert isinstance(host.do(Write("a", 990, b"x" * 11)), DiskFull)
    assert host.do(Write("a", 990, b"x" * 10), Sync("a")) is None
    assert host.do(Remove("a")) is None
    host.disk.full = False
    assert host.do(put("c", b"c")) is None
    assert host.disk.contents() == {"c": b"c"}


def test_a_slow_disk_is_slow() -> None:
    taken = []
    for slowness in (1, 100):
        host = Host()
        host.disk.slowness = slowness
        host.door.submit([put("a", b"a")], lambda error, host=host: taken.append(host.world.now_ns))
        host.run()
    assert taken[1] > 50 * taken[0]


def test_a_cut_is_struck_while_a_deed_is_under_way() -> None:
    struck = []
    host = Host()
    host.disk.cut_armed(2, lambda: struck.append(host.door.lines["journal"].present))
    create, write = Create("a", 100), Write("a", 0, b"x")
    host.submit("both", create, write)
    host.run()
    assert struck == [write]


def test_a_process_can_die_when_it_gives_deeds_to_the_disk() -> None:
    host = Host()
    host.process.crash_armed(2, host.process.crash)
    host.submit("first", put("a", b"a"))
    host.submit("second", put("b", b"b"))
    host.run()
    assert host.process.dead
    assert "b" not in host.boot().names()


@pytest.mark.parametrize("kind", ["flip", "zero", "unreadable"])
def test_rot_spoils_one_sector(kind: str) -> None:
    host = Host()
    assert host.do(put("a", OLD * 3000)) is None
    host.process.crash()
    host.disk.spoil("a", 1100, kind)
    door = host.boot()
    if kind == "unreadable":
        with pytest.raises(DiskFailed):
            door.read("a")
        with pytest.raises(DiskFailed):
            door.read("a", 1535, 1)
        assert door.read("a", 0, 1024) == OLD * 1024
        assert door.read("a", 1536) == OLD * (3000 - 1536)
        assert host.do(Write("a", 1024, NEW * SECTOR)) is None
        assert door.read("a", 1024, SECTOR) == NEW * SECTOR
        return
    wrong = [at for at, byte in enumerate(door.read("a")) if byte != OLD[0]]
    assert wrong == ([1100] if kind == "flip" else list(range(1024, 1536)))


def test_rot_takes_a_suitable_file_that_holds_something() -> None:
    host = Host()
    assert host.do(Create("zeros.seg", 5000), put("a.seg", OLD * 600), put("b", NEW)) is None
    host.process.crash()
    before = host.disk.contents()
    assert "a.seg" in host.disk.rot(lambda name: name.endswith(".seg"))
    assert host.disk.rot(lambda name: name == "zeros.seg") == ""
    after = host.disk.contents()
    assert {name for name in before if before[name] != after[name]} <= {"a.seg"}


def test_a_wiped_disk_is_empty() -> None:
    host = Host()
    assert host.do(put("a", b"a"), put("b", b"b"), Remove("b")) is None
    host.process.crash()
    host.disk.wipe()
    assert host.power_cut().names() == []


def test_close_carries_out_what_was_submitted() -> None:
    host = Host()
    host.submit("all", Create("a", 10), Write("a", 0, b"x"), Sync("a"))
    host.submit("checkpoint", put("c", b"c"), line="checkpoint")
    host.door.close()
    assert host.disk.contents() == {"a": b"x" + bytes(9), "c": b"c"}
    host.run()
    assert sorted(host.answers) == [("all", None), ("checkpoint", None)]
    assert host.power_cut().names() == ["a", "c"]


def test_only_one_process_has_the_disk() -> None:
    host = Host()
    with pytest.raises(AssertionError, match="in use"):
        host.boot()
    with pytest.raises(AssertionError, match="in use"):
        host.disk.power_cut()


def test_after_calls_a_living_process() -> None:
    host = Host()
    called: list[int] = []
    host.door.after(5 * MILLISECOND, lambda: called.append(host.world.now_ns))
    host.run(1)
    assert called == [5 * MILLISECOND]
    host.door.after(5 * MILLISECOND, lambda: called.append(0))
    host.process.crash()
    host.run(1)
    assert called == [5 * MILLISECOND]


def test_a_misuse_is_a_failure_of_the_run() -> None:
    wrong: list[Callable[[Host], None]] = [
        lambda host: host.submit("twice", Create("a", 1), Create("a", 1)),
        lambda host: host.submit("nowhere", Write("never", 0, b"x")),
        lambda host: host.submit("nowhere", Sync("never")),
        lambda host: host.submit("nothing", Rename("never", "ever")),
        lambda host: host.submit("taken", put("a", b""), put("b", b""), Rename("a", "b")),
    ]
    for deed in wrong:
        host = Host()
        deed(host)
        host.world.run_until(SECOND)
        assert len(host.world.failures) == 1
        assert host.answers == []


def test_the_same_seed_does_the_same() -> None:
    def run(seed: int) -> tuple[str, dict[str, bytes]]:
        host = written(seed, sectors=40)
        host.submit("never", put("b", b"b"), Write("a", 100, b"torn" * 500))
        host.run(0.003)
        host.power_cut()
        host.process.crash()
        host.disk.rot()
        return host.world.hash.hexdigest(), host.disk.contents()

    assert run(7) == run(7)
    assert run(7) != run(8)
