"""Runs several members on one host: one process per core, with one command and one log.

Each member is a process like that of `holdfast start`, with its own ports, name and directory. The first signal drains
all members, a second ends them at once. A member that dies is restarted, with a growing delay if it dies soon. A member
that an operator let leave stays away; one that `holdfast cluster restart` let leave is started again. If the supervisor
is killed, its members drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvloop

from holdfast.config import Settings
from holdfast.errors import ConfigError
from holdfast.runtime.logs.process_log import begin_log
from holdfast.runtime.memory import limit_of
from holdfast.runtime.supervision import RESTART, SUPERVISED_BY

log = logging.getLogger("holdfast")

MEMBERS_MAX = 256
MISUSED, UNSAFE = 2, 1
WAIT_S, WAIT_MAX_S = 1.0, 60.0
"""Before a restart: doubled each time, until the member has run for the maximum."""
CHUNK_BYTES = 65_536
PR_SET_PDEATHSIG = 1
PROGRAM = (
    "from holdfast.runtime.supervisor import belong; belong(); from holdfast.cli.main import main; main()"
)


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    own: Mapping[str, object]
    core: int | None


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def places(settings: Settings, count: int) -> list[Place]:
    """Settings for `count` members that share these. Raises ConfigError."""
    member, usable = settings.member, cores()
    if not member.member_port:
        raise ConfigError("member.member_port = 0 is not allowed with --members: each must know the others")
    for key, first in (("member_port", member.member_port), ("client_port", member.client_port)):
        if first + count - 1 > 65_535:
            raise ConfigError(f"member.{key} = {first} is not allowed: --members {count} needs as many ports")
    if member.client_port and abs(member.member_port - member.client_port) < count:
        raise ConfigError(
            f"member.client_port = {member.client_port} and member.member_port = {member.member_port} are too near "
            f"each other: --members {count} needs as many ports from each on"
        )
    host = member.public_host or member.host
    shown = f"[{host}]" if ":" in host else host
    siblings = [f"{shown}:{member.member_port + number}" for number in range(count)]
    seeds = list(dict.fromkeys([*settings.cluster.seeds, *siblings]))
    found = []
    for number in range(count):
        name = f"{member.name or 'member'}-{number + 1}"
        own: dict[str, object] = {
            "cluster.seeds": seeds,
            "cluster.bootstrap": settings.cluster.bootstrap and not number,
            "member.member_port": member.member_port + number,
            "member.client_port": member.client_port and member.client_port + number,
        }
        if member.name:
            own["member.name"] = name
        if settings.is_given("http.port"):
            own["http.port"] = settings.http.port and settings.http.port + number
        if settings.persistence.directory:
            own["persistence.directory"] = str(Path(settings.persistence.directory) / f"member-{number + 1}")
        if settings.log.file:
            own["log.file"] = f"{settings.log.file}.member-{number + 1}"
        if not settings.is_given("limits.memory_bytes"):
            own["limits.memory_bytes"] = max(settings.limits.memory_bytes, limit_of(0).size // count)
        found.append(Place(name, own, usable[number] if count <= len(usable) else None))
    return found


def told(settings: Mapping[str, object]) -> list[str]:
    found = []
    for dotted, value in settings.items():
        if isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, list | tuple):
            text = ",".join(map(str, value))
        else:
            text = str(value)
        found += ["--set", f"{dotted}={text}"]
    return found


def belong() -> None:
    """Called first in a member's process: bind to the core, and drain when the supervisor dies."""
    parent, core = sys.argv.pop(1).split("/")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.environ[SUPERVISED_BY] = "holdfast"
    if os.getppid() != int(parent):
        sys.exit(UNSAFE)
    if core:
        os.sched_setaffinity(0, {int(core)})


@dataclass(slots=True)
class Supervised:
    place: Place
    process: asyncio.subprocess.Process | None = None
    lives: int = 0
    status: int = 0
    wait_s: float = field(default=WAIT_S)


class Supervisor:
    def __init__(self, places: Sequence[Place], arguments: Sequence[str], *, named: bool = True) -> None:
        """`arguments`: for `holdfast start`, common to all. `named`: prefix each line of output with the
        member's name (JSON lines contain it already).
        """
        self._named = named
        self._members = [Supervised(place) for place in places]
        self._arguments = list(arguments)
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        log.info("supervisor %d: starting %d members", os.getpid(), len(self._members))
        await asyncio.gather(*(self._keep(one) for one in self._members))
        status = max(one.status for one in self._members)
        log.info("supervisor: all members have ended; exit status %d", status)
        return status

    def stop(self) -> None:
        if not self._stopping.is_set():
            log.info("supervisor: all members are asked to leave (a second signal ends them at once)")
        self._stopping.set()
        for one in self._members:
            _ask_to_leave(one.process)

    async def _keep(self, one: Supervised) -> None:
        while not self._stopping.is_set():
            began_s = time.monotonic()
            code = await self._live(one)
            one.status = code if code >= 0 else UNSAFE
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            if self._stopping.is_set() or code in (0, UNSAFE):
                log.log(logging.INFO if code == 0 else logging.WARNING, "member %s %s", one.place.name, how)
                return
            if code == MISUSED and one.lives == 1:
                log.error("member %s %s: it could not be started, so all others end", one.place.name, how)
                self.stop()
                return
            if code == RESTART:
                log.info("member %s has left to be restarted", one.place.name)
                continue
            if time.monotonic() - began_s >= WAIT_MAX_S:
                one.wait_s = WAIT_S
            log.error("member %s %s; it is started again in %g s", one.place.name, how, one.wait_s)
            await self._rest(one.wait_s)
            one.wait_s = min(2 * one.wait_s, WAIT_MAX_S)

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass

    async def _live(self, one: Supervised) -> int:
        core = "" if one.place.core is None else str(one.place.core)
        command = [sys.executable, "-P", "-c", PROGRAM, f"{os.getpid()}/{core}", "start"]
        # In its own session: Ctrl-C reaches only the supervisor, which passes it on.
        process = await asyncio.create_subprocess_exec(
            *command,
            *self._arguments,
            *told(one.place.own),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        one.process, one.lives = process, one.lives + 1
        log.info(
            "member %s is process %d%s", one.place.name, process.pid, f", on core {core}" if core else ""
        )
        if self._stopping.is_set():
            _ask_to_leave(process)
        assert process.stdout is not None, "it was asked for"
        await passed_on(process.stdout, f"{one.place.name} | " if self._named else "")
        code = await process.wait()
        one.process = None
        return code


def _ask_to_leave(process: asyncio.subprocess.Process | None) -> None:
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)


async def passed_on(lines: asyncio.StreamReader, before: str) -> None:
    prefix, rest = before.encode(), b""
    while chunk := await lines.read(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > CHUNK_BYTES:
            whole, rest = [*whole, rest], b""
        if whole:
            _write(b"".join(prefix + line + b"\n" for line in whole))
    if rest:
        _write(prefix + rest + b"\n")


def _write(text: bytes) -> None:
    try:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    except OSError:
        # The reader of the log has gone; members must neither end nor wait for it.
        pass


def main(settings: Settings, count: int, arguments: Sequence[str]) -> int:
    """Run several members until all have ended; returns the exit status. Raises ConfigError.

    `settings`: common to all. `arguments`: the same settings as arguments of `holdfast start`.
    """
    found = places(settings, count)
    # Each member writes its own file; the supervisor logs to standard output.
    begin_log(msgspec.structs.replace(settings.log, file=""), "supervisor")
    if count == 2 and not settings.cluster.seeds and settings.cluster.quorum == "majority":
        log.warning(
            "supervisor: if one of two members crashes, the other has no majority and serves nothing until both are "
            "restarted: use --members 3, also with fewer cores, or join other hosts"
        )

    async def story() -> int:
        return await Supervisor(found, arguments, named=settings.log.format == "text").run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story())
