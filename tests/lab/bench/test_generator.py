"""The load generator: it counts what is answered, sends each frame once, and takes not any answer for a good one."""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast_lab.bench import frames, load
from holdfast_lab.bench.load import Shape, Target

REQUEST, ANSWER = b"request%03d", b"+ok..%03d"
SHAPE = Shape(len(REQUEST % 0), len(ANSWER % 0), b"+ok")
FRAMES = 64


class Server:
    """Answers each request, and remembers it; the request `wrong` gets a wrong answer."""

    def __init__(self, wrong: bytes = b"") -> None:
        self.wrong = wrong
        self.seen: list[bytes] = []
        self.near: list[socket.socket] = []
        self.threads: list[threading.Thread] = []

    def connect(self, count: int) -> list[socket.socket]:
        for _ in range(count):
            near, far = socket.socketpair()
            self.near.append(near)
            thread = threading.Thread(target=self.serve, args=(far,))
            thread.start()
            self.threads.append(thread)
        return self.near

    def serve(self, door: socket.socket) -> None:
        with door, suppress(ConnectionError):  # the generator ended with answers unread
            held = b""
            while piece := door.recv(50):
                held += piece
                while len(held) >= SHAPE.request_bytes:
                    request, held = held[: SHAPE.request_bytes], held[SHAPE.request_bytes :]
                    self.seen.append(request)
                    door.sendall(b"-error.." if request == self.wrong else ANSWER % int(request[-3:]))

    def close(self) -> None:
        for near in self.near:
            near.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture(params=["c", "python"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    if request.param == "python":
        return (sys.executable, str(load.HERE / "generator.py"))
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    return load.generator_command(tmp_path)


@pytest.fixture
def frame_file(tmp_path: Path) -> Path:
    path = tmp_path / "frames"
    path.write_bytes(b"".join(REQUEST % number for number in range(FRAMES)))
    return path


@pytest.mark.parametrize("depth", [1, 8])
def test_a_number_of_requests_is_sent_once_each(
    command: tuple[str, ...], server: Server, frame_file: Path, depth: int
) -> None:
    targets = [Target(frame_file, server.connect(4))]
    sample = load.generate(command, targets, SHAPE, depth=depth, count=FRAMES)
    assert sample.requests == FRAMES
    assert sorted(server.seen) == [REQUEST % number for number in range(FRAMES)]
    assert 0 < sample.p50_us <= sample.p99_us <= sample.max_us


def test_it_runs_for_the_time_given_and_counts_every_answer(
    command: tuple[str, ...], server: Server, frame_file: Path
) -> None:
    sample = load.generate(command, [Target(frame_file, server.connect(3))], SHAPE, depth=4, seconds=0.3)
    assert sample.requests == len(server.seen)
    assert sample.requests % 4 == 0
    assert 0.3 <= sample.seconds < 60


def test_a_wrong_answer_ends_the_run(command: tuple[str, ...], server: Server, frame_file: Path) -> None:
    server.wrong = REQUEST % 17
    with pytest.raises(RuntimeError, match="wrong answer begins with 2d6572"):
        load.generate(command, [Target(frame_file, server.connect(2))], SHAPE, depth=1, count=FRAMES)


def test_a_closed_connection_ends_the_run(command: tuple[str, ...], frame_file: Path) -> None:
    near, far = socket.socketpair()
    with near:
        far.close()
        with pytest.raises(RuntimeError, match=r"closed a connection|Broken pipe"):
            load.generate(command, [Target(frame_file, [near])], SHAPE, depth=1, count=FRAMES)


def test_all_requests_of_a_kind_have_the_length_that_is_announced(tmp_path: Path) -> None:
    owners, numbers = [partition % 2 for partition in range(271)], list(range(100))
    for size in (1, 100, 5000):
        for kind in ("set", "get"):
            files = frames.write_grid_frames(kind, numbers, owners, tmp_path, size)
            whole = sum(file.stat().st_size for file in files)
            assert whole == 100 * frames.grid_shape(kind, size).request_bytes
        for kind in ("set", "get", "set+wait"):
            file = frames.write_redis_frames(kind, numbers, tmp_path, size)
            assert file.stat().st_size == 100 * frames.redis_shape(kind, size).request_bytes


def test_requests_are_what_the_official_client_sends() -> None:
    codec = pytest.importorskip("hazelcast.protocol.codec.map_set_codec")
    from hazelcast.protocol.codec import map_get_codec
    from hazelcast.serialization.data import Data

    key, value = frames.data("k" * 16), frames.data("v" * 100)
    for ours, request in (
        (frames.set_message(key, value, 7), codec.encode_request(frames.MAP, Data(key), Data(value), 1, -1)),
        (frames.get_message(key, 7), map_get_codec.encode_request(frames.MAP, Data(key), 1)),
    ):
        request.set_correlation_id(1)
        request.set_partition_id(7)
        assert ours == bytes(request.buf)


def test_keys_go_where_the_client_sends_them() -> None:
    service = pytest.importorskip("hazelcast.hash")
    key = frames.data(frames.key_text(12345))
    assert frames.partition_of(key, 271) == service.hash_to_index(service.murmur_hash3_x86_32(key[8:]), 271)
