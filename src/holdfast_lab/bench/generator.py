"""The load generator of `generator.c` in Python, for machines without a C compiler: same arguments and result.

Slower: without pipelining it may itself be the limit, and the report then says so.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

BUFFER = bytearray(1 << 16)
SILENCE_S = 30


@dataclass(slots=True)
class Group:
    """Pre-encoded frames, and the position of the next request."""

    frames: memoryview
    cursor: int = 0


@dataclass(slots=True)
class Connection:
    door: socket.socket
    group: Group
    rest: memoryview = field(default_factory=lambda: memoryview(b""))
    missing: int = 0
    sent_s: float = 0.0

    def send_next(self, size: int, answers: int, now: float) -> None:
        """Send the next `size` bytes of requests, whose responses have `answers` bytes."""
        group = self.group
        if group.cursor + size > len(group.frames):
            group.cursor = 0
        self.rest = group.frames[group.cursor : group.cursor + size]
        group.cursor += size
        self.missing, self.sent_s = answers, now
        self.push()

    def push(self) -> None:
        if self.rest:
            try:
                self.rest = self.rest[self.door.send(self.rest) :]
            except BlockingIOError:
                return

    def receive(self, answer_bytes: int, prefix: bytes) -> None:
        """Checks only responses at the beginning of a piece."""
        try:
            count = self.door.recv_into(BUFFER)
        except BlockingIOError:
            return
        if count == 0:
            raise SystemExit("generator: the server closed a connection")
        if self.missing % answer_bytes == 0 and count >= len(prefix) and not BUFFER.startswith(prefix):
            raise SystemExit(f"generator: a wrong answer begins with {BUFFER[: len(prefix)].hex()}")
        self.missing -= count
        if self.missing < 0:
            raise SystemExit("generator: answers are longer than expected")


def run(
    seconds: float, limit: int, depth: int, sizes: tuple[int, int], prefix: bytes, links: list[Connection]
) -> str:
    """Returns the line of JSON."""
    request_bytes, answer_bytes = sizes
    poll = select.epoll()
    by_fd = {link.door.fileno(): link for link in links}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    samples: list[float] = []
    begin = now = time.perf_counter()
    cpu_before = time.process_time()
    started = busy = 0
    for link in links:
        if limit == 0 or started < limit:
            started += depth
            busy += 1
            link.send_next(depth * request_bytes, depth * answer_bytes, now)
    while busy:
        ready = poll.poll(0.001 if any(link.rest for link in links) else SILENCE_S)
        for link in (waiting for waiting in links if waiting.rest):
            link.push()
        for fd, _ in ready:
            link = by_fd[fd]
            if not link.missing:
                continue
            link.receive(answer_bytes, prefix)
            if link.missing:
                continue
            now = time.perf_counter()
            samples.append(now - link.sent_s)
            if started < limit if limit else now - begin < seconds:
                started += depth
                link.send_next(depth * request_bytes, depth * answer_bytes, now)
            else:
                busy -= 1
    samples.sort()
    points = {"p50_us": 0.5, "p99_us": 0.99, "max_us": 1.0}
    quantiles = {name: round(samples[int(q * (len(samples) - 1))] * 1e6, 1) for name, q in points.items()}
    result = {"requests": started, "seconds": now - begin, "cpu_seconds": time.process_time() - cpu_before}
    return json.dumps(result | quantiles)


def main(arguments: list[str]) -> None:
    seconds, limit, depth, request_bytes, answer_bytes, prefix, *pairs = arguments
    links: list[Connection] = []
    for path, fds in zip(pairs[::2], pairs[1::2], strict=True):
        group = Group(memoryview(Path(path).read_bytes()))
        for fd in fds.split(","):
            door = socket.socket(fileno=int(fd))
            door.setblocking(False)
            links.append(Connection(door, group))
    sizes = (int(request_bytes), int(answer_bytes))
    print(run(float(seconds), int(limit), int(depth), sizes, bytes.fromhex(prefix), links))


if __name__ == "__main__":
    main(sys.argv[1:])
