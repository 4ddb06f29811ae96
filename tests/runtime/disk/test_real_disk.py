from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.engine.ports import Create, Deed, DiskFailed, DiskFull, Put, Remove, Rename, Sync, Write
from holdfast.errors import ConfigError
from holdfast.runtime.disk.data_directory import compiled_thread
from holdfast.runtime.disk.real_disk import RealDisk, WriteThread


class Bench:
    """A disk, and the loop that hears of it."""

    def __init__(self, directory: Path, new_thread: Callable[[], WriteThread] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.disk = RealDisk(directory, self.loop, new_thread=new_thread)

    def do(self, *deeds: Deed, line: str = "journal") -> Exception | None:
        """Have these done, and wait."""
        told: asyncio.Future[Exception | None] = self.loop.create_future()
        self.disk.submit(deeds, told.set_result, line=line)
        return self.loop.run_until_complete(asyncio.wait_for(told, 120))

    def close(self) -> None:
        self.disk.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


@pytest.fixture(params=["python", "compiled"])
def new_thread(request: pytest.FixtureRequest) -> Callable[[], WriteThread] | None:
    if request.param == "python":
        return None
    return compiled_thread() or pytest.skip("the thread of the journal is not compiled here")


@pytest.fixture
def bench(tmp_path: Path, new_thread: Callable[[], WriteThread] | None) -> Iterator[Bench]:
    made = Bench(tmp_path / "store", new_thread)
    yield made
    made.close()


def test_what_is_written_is_there(bench: Bench, tmp_path: Path) -> None:
    assert (
        bench.do(Create("next.seg", 100_000), Rename("next.seg", "a"), Write("a", 10, b"hello"), Sync("a"))
        is None
    )
    disk = bench.disk
    assert disk.names() == ["a"]
    assert disk.size("a") == 100_000
    assert disk.read("a", 8, 9) == b"\0\0hello\0\0"
    assert disk.read("a", 99_998, 50) == b"\0\0"
    assert len(disk.read("a")) == 100_000
    assert bench.do(Put(lambda: ("b", b"whole")), line="checkpoint") is None
    assert bench.do(Put(lambda: ("b", b"again"))) is None
    assert disk.read("b") == b"again"
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "store").iterdir()} == {0o600}
    assert bench.do(Remove("a"), Remove("a"), Rename("x", "b")) is None
    assert disk.names() == ["b"]


def test_the_room_of_a_file_is_reserved(bench: Bench, tmp_path: Path) -> None:
    assert bench.do(Create("a", 1_000_000)) is None
    assert (tmp_path / "store" / "a").stat().st_blocks * 512 >= 1_000_000


def test_who_waits_is_told_in_order_in_the_loop(bench: Bench) -> None:
    told: list[int] = []
    threads: set[int] = set()

    def done(number: int) -> Callable[[Exception | None], None]:
        def heard(error: Exception | None) -> None:
            assert error is None
            told.append(number)
            threads.add(threading.get_ident())

        return heard

    bench.do(Create("a", 4096))
    for number in range(200):
        bench.disk.submit(
            [Write("a", number, b"x"), *([Sync("a")] if number % 20 == 0 else [])], done(number)
        )
    assert told == []
    assert bench.do() is None
    assert told == list(range(200))
    assert threads == {threading.get_ident()}


def test_two_lines_do_not_wait_for_each_other(bench: Bench) -> None:
    go = threading.Event()

    def slow() -> tuple[str, bytes]:
        assert go.wait(20)
        return "slow", b"x"

    told: list[str] = []
    bench.disk.submit([Put(slow)], lambda error: told.append("slow"), line="checkpoint")
    assert bench.do(Create("a", 4096)) is None
    assert told == []
    go.set()
    assert bench.do(line="checkpoint") is None
    assert told == ["slow"]


def test_after_is_called_later_and_not_at_once(bench: Bench) -> None:
    called: list[int] = []
    bench.disk.after(0, lambda: called.append(1))
    bench.disk.after(5_000_000, lambda: called.append(2))
    assert called == []
    bench.loop.run_until_complete(asyncio.sleep(0.05))
    assert called == [1, 2]


def test_close_waits_for_what_was_submitted_and_tells_nobody(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    told: list[Exception | None] = []
    bench.disk.submit([Create("a", 4096), Write("a", 0, b"x" * 4096), Sync("a")], told.append)
    bench.close()
    assert (tmp_path / "a").read_bytes() == b"x" * 4096
    assert told == []


def test_another_process_is_kept_out(bench: Bench, tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom holdfast.runtime.disk.real_disk import RealDisk\n"
        "from holdfast.errors import ConfigError\n"
        "try:\n    RealDisk(sys.argv[1], asyncio.new_event_loop())\n"
        "except ConfigError as error:\n    print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "another process uses it" in told.stdout, told.stderr
    assert "persistence.directory" in told.stdout


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    loop = asyncio.new_event_loop()
    with pytest.raises(ConfigError, match=r"persistence\.directory"):
        RealDisk(tmp_path / "file" / "store", loop)
    loop.close()


def test_half_a_file_of_a_life_before_is_gone(tmp_path: Path) -> None:
    (tmp_path / "p1.new").write_bytes(b"half")
    bench = Bench(tmp_path)
    assert bench.disk.names() == []
    bench.close()
    assert not (tmp_path / "p1.new").exists()


@pytest.fixture
def limited() -> Iterator[None]:
    """No file may grow above 1 MB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_without_room_nothing_is_changed_and_it_may_be_tried_again(bench: Bench, limited: None) -> None:
    assert bench.do(Put(lambda: ("b", b"before"))) is None
    assert isinstance(bench.do(Create("a", 2_000_000), Put(lambda: ("never", b""))), DiskFull)
    assert isinstance(bench.do(Put(lambda: ("b", bytes(2_000_000)))), DiskFull)
    assert bench.disk.names() == ["b"]
    assert bench.disk.read("b") == b"before"
    assert bench.do(Create("a", 500_000)) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device_is_no_room(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "store" / "full").symlink_to("/dev/full")
    assert isinstance(bench.do(Write("full", 0, b"x")), DiskFull)


def test_a_failed_sync_ends_it_for_good(bench: Bench, tmp_path: Path) -> None:
    assert bench.do(Create("a", 4096), Write("a", 0, b"x")) is None
    # A pipe can be written to, but not synced.
    os.mkfifo(tmp_path / "store" / "pipe")
    error = bench.do(Sync("pipe"), Write("a", 0, b"y"))
    assert isinstance(error, DiskFailed)
    assert isinstance(bench.do(Sync("a")), DiskFailed), "never tried again"
    assert isinstance(bench.do(Put(lambda: ("b", b"x")), line="checkpoint"), DiskFailed)
    assert bench.disk.read("a", 0, 1) == b"x"


def test_a_file_that_is_missing_is_a_failure(bench: Bench) -> None:
    assert isinstance(bench.do(Write("nothing", 0, b"x")), DiskFailed)
    with pytest.raises(FileNotFoundError):
        bench.disk.read("nothing")


def test_an_error_in_a_maker_is_a_failure(bench: Bench) -> None:
    def broken() -> tuple[str, bytes]:
        raise ValueError("no")

    assert isinstance(bench.do(Put(broken)), DiskFailed)


# -- the compiled thread


@pytest.mark.rule("runtime/W-1")
def test_groups_of_both_threads_keep_their_order(bench: Bench, tmp_path: Path) -> None:
    told: list[int] = []

    def done(number: int) -> Callable[[Exception | None], None]:
        def on_done(error: Exception | None) -> None:
            assert error is None
            told.append(number)

        return on_done

    bench.do(Create("a", 4096), Write("a", 0, b"?"))
    names = ["a"]
    expected = bytearray(400)
    expected[:1] = b"?"
    for number in range(300):
        name = names[-1]
        byte = bytes([number % 250 + 1])
        deeds: list[Deed] = [Write(name, number, byte)]
        expected[number : number + 1] = byte
        if number % 7 == 3:
            deeds.append(Sync(name))
        if number % 31 == 30:
            names.append(f"a{number}")
            deeds.append(Rename(name, names[-1]))
        bench.disk.submit(deeds, done(number))
    assert bench.do() is None
    assert told == list(range(300))
    assert bench.disk.read(names[-1], 0, 400) == bytes(expected)
    assert not bench.disk._behind
    assert not bench.disk._in_python
    assert not bench.disk._direct


def test_blocks_go_to_the_compiled_thread(bench: Bench) -> None:
    if bench.disk._thread is None:
        pytest.skip("for the compiled thread")
    bench.do(Create("a", 4096), Write("a", 0, b"?"))
    told: list[Exception | None] = []
    bench.disk.submit([Write("a", 0, b"x"), Sync("a")], told.append)
    bench.disk.submit([Sync("a")], told.append)
    assert (len(bench.disk._direct), bench.disk._in_python) == (2, 0)
    bench.disk.submit([Remove("b")], told.append)
    bench.disk.submit([Write("a", 1, b"y")], told.append)
    assert (len(bench.disk._direct), len(bench.disk._behind)) == (2, 2)
    assert bench.do() is None
    assert told == [None] * 4
    bench.disk.submit([Write("a", 2, b"z")], told.append)
    assert len(bench.disk._direct) == 1
    assert bench.do() is None
    assert bench.disk.read("a", 0, 3) == b"xyz"


@pytest.mark.rule("runtime/W-1")
def test_a_group_submitted_when_another_is_done_comes_after_those_that_wait(bench: Bench) -> None:
    """The journal submits its next block in the callback of the last one. Example: the identity of a store is put
    during a write; the next block is of no use before the identity is durable.
    """
    bench.do(Create("a", 4096), Write("a", 0, b"?"))
    told: list[str] = []

    def on_first(error: Exception | None) -> None:
        assert error is None
        told.append("first")
        bench.disk.submit([Write("a", 0, b"3"), Sync("a")], lambda error: told.append("third"))

    bench.disk.submit([Write("a", 0, b"1")], on_first)
    bench.disk.submit([Put(lambda: ("b", b"")), Write("a", 0, b"2")], lambda error: told.append("second"))
    assert bench.do(line="checkpoint") is None
    while len(told) < 3:
        assert bench.do(line="checkpoint") is None
    assert told == ["first", "second", "third"]
    assert bench.disk.read("a", 0, 1) == b"3"


def test_a_callback_may_close_the_disk(tmp_path: Path, new_thread: Callable[[], WriteThread] | None) -> None:
    bench = Bench(tmp_path, new_thread)
    errors: list[object] = []
    bench.loop.set_exception_handler(lambda loop, context: errors.append(context))
    bench.do(Create("a", 4096), Write("a", 0, b"?"))
    told: list[int] = []

    def on_first(error: Exception | None) -> None:
        told.append(1)
        bench.disk.close()

    bench.disk.submit([Write("a", 0, b"1")], on_first)
    bench.disk.submit([Write("a", 1, b"2")], lambda error: told.append(2))
    bench.disk.submit([Put(lambda: ("b", b"3"))], lambda error: told.append(3))
    time.sleep(0.05)  # Both blocks are written.
    bench.loop.run_until_complete(asyncio.sleep(0.05))
    while not told:
        bench.loop.run_until_complete(asyncio.sleep(0.01))
    assert (tmp_path / "a").read_bytes()[:2] == b"12"
    assert (tmp_path / "b").read_bytes() == b"3"
    assert (told, errors) == ([1], [])
    bench.close()


def test_a_block_without_room_may_be_tried_again(bench: Bench, limited: None) -> None:
    assert bench.do(Create("a", 500_000), Write("a", 0, b"x")) is None
    assert isinstance(bench.do(Write("a", 1_500_000, b"y"), Sync("a")), DiskFull)
    assert bench.do(Write("a", 1, b"z"), Sync("a")) is None
    assert bench.disk.read("a", 0, 2) == b"xz"


def _pipe(bench: Bench, tmp_path: Path) -> None:
    """A file that can be written to, but not synced."""
    os.mkfifo(tmp_path / "store" / "pipe")
    assert bench.do(Create("a", 4096), Write("a", 0, b"x"), Write("pipe", 0, b"")) is None


@pytest.mark.rule("runtime/W-2")
def test_a_failed_sync_of_a_block_ends_both_lines(bench: Bench, tmp_path: Path) -> None:
    _pipe(bench, tmp_path)
    told: list[Exception | None] = []
    bench.disk.submit([Sync("pipe")], told.append)
    bench.disk.submit([Write("a", 0, b"y"), Sync("a")], told.append)
    assert isinstance(bench.do(Write("a", 0, b"z")), DiskFailed)
    assert [type(error) for error in told] == [DiskFailed, DiskFailed]
    assert isinstance(bench.do(Put(lambda: ("b", b"x")), line="checkpoint"), DiskFailed)
    assert bench.disk.read("a", 0, 1) == b"x"
    assert bench.disk.names() == ["a", "pipe"]


@pytest.mark.rule("runtime/W-2")
def test_a_failure_in_the_other_line_ends_blocks(bench: Bench) -> None:
    assert bench.do(Create("a", 4096), Write("a", 0, b"x")) is None
    assert isinstance(bench.do(Write("nothing", 0, b""), line="checkpoint"), DiskFailed)
    assert isinstance(bench.do(Write("a", 0, b"y")), DiskFailed)
    assert bench.disk.read("a", 0, 1) == b"x"


def test_close_finishes_blocks_and_what_waits_for_them(
    tmp_path: Path, new_thread: Callable[[], WriteThread] | None
) -> None:
    bench = Bench(tmp_path, new_thread)
    bench.do(Create("a", 4096), Write("a", 0, b"?"))
    told: list[Exception | None] = []
    for number in range(50):
        bench.disk.submit([Write("a", number, b"x"), Sync("a")], told.append)
    bench.disk.submit([Rename("a", "b"), Write("b", 50, b"y")], told.append)
    bench.close()
    assert (tmp_path / "b").read_bytes()[:51] == b"x" * 50 + b"y"
    assert told == []


def test_a_slow_block_is_reported_with_its_own_time(bench: Bench) -> None:
    bench.do(Create("a", 4096), Write("a", 0, b"?"))
    clock = bench.disk.clocks["journal"]
    clock.slowest()
    bench.do(Write("a", 0, b"x"), Sync("a"))
    slowest = clock.slowest()
    assert slowest.what in {"sync of a", "write of a"}
    assert 0 < slowest.took_s < 10
    assert slowest.done
    assert clock.slowest().took_s == 0
