"""Several members on one host: a process for each core, one command, one log, one end.

Each member is a process of its own, as `holdfast start` runs it, with doors, name and directory of its own. A signal to
the supervisor is passed on to all, so one drains them and a second one ends them at once. A member that dies is started
again, later each time that it dies soon; the others go on meanwhile, for what they hold is in their memory. One that
has left, because an operator wanted it, stays away. When the supervisor itself is killed, its members drain.
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

log = logging.getLogger("holdfast")

MEMBERS_MAX = 256
MISUSED, UNSAFE = 2, 1
"""Exit statuses of a member: see `holdfast.runtime.process`."""
WAIT_S, WAIT_MAX_S = 1.0, 60.0
"""How long a member that died is waited with: twice as long each time, until it has run for the longest of these."""
CHUNK_BYTES = 65_536
PR_SET_PDEATHSIG = 1
PROGRAM = (
    "from holdfast.runtime.supervisor import belong; belong(); from holdfast.cli.main import main; main()"
)


@dataclass(frozen=True, slots=True)
class Place:
    """What one of the members has for itself."""

    name: str
    """In the log."""
    own: Mapping[str, object]
    """Its settings over those of all, by dotted key."""
    core: int | None
    """The core that it runs on; None: any."""


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def places(settings: Settings, count: int) -> list[Place]:
    """What each of `count` members has for itself, if these are the settings of all. Raises ConfigError."""
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
    """The arguments that say these settings to `holdfast start`."""
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
    """In a member's process, before anything else: run where the supervisor says, and drain when it is gone."""
    parent, core = sys.argv.pop(1).split("/")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(UNSAFE)
    if core:
        os.sched_setaffinity(0, {int(core)})


@dataclass(slots=True)
class Supervised:
    """One of the members, in all its lives."""

    place: Place
    process: asyncio.subprocess.Process | None = None
    lives: int = 0
    status: int = 0
    """Of its last end."""
    wait_s: float = field(default=WAIT_S)


class Supervisor:
    """Runs members until all have ended."""

    def __init__(self, places: Sequence[Place], arguments: Sequence[str], *, named: bool = True) -> None:
        """arguments: of `holdfast start`, for all of them; what is their own is added. named: whether each line of a
        member begins with its name; a JSON object has it inside.
        """
        self._named = named
        self._members = [Supervised(place) for place in places]
        self._arguments = list(arguments)
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Start all, and return the exit status when the last one has ended for good."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        log.info("supervisor %d: starting %d members", os.getpid(), len(self._members))
        await asyncio.gather(*(self._keep(one) for one in self._members))
        status = max(one.status for one in self._members)
        log.info("supervisor: all members have ended; exit status %d", status)
        return status

    def stop(self) -> None:
        """Let all members leave; the second time at once."""
        if not self._stopping.is_set():
            log.info("supervisor: all members are asked to leave (a second signal ends them at once)")
        self._stopping.set()
        for one in self._members:
            _ask_to_leave(one.process)

    async def _keep(self, one: Supervised) -> None:
        """Run this member, again and again, until it has left or is not wanted any more."""
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
        """Start the process and pass on what it says, until it ends; answers its exit status."""
        core = "" if one.place.core is None else str(one.place.core)
        command = [sys.executable, "-P", "-c", PROGRAM, f"{os.getpid()}/{core}", "start"]
        # In a session of its own: Ctrl-C reaches the supervisor alone, which passes it on.
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
    """Write what a member says to our own output, each line with this before it."""
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
        # Whoever read the log has gone. The members go on, and must not wait for it.
        pass


def main(settings: Settings, count: int, arguments: Sequence[str]) -> int:
    """Run so many members until all have ended; answers the exit status. Raises ConfigError when a setting forbids it.

    settings: of all of them. arguments: of `holdfast start`, that say the same.
    """
    found = places(settings, count)
    # Each member writes a file of its own, and the supervisor none: what it has to say is on standard output.
    begin_log(msgspec.structs.replace(settings.log, file=""), "supervisor")
    if count == 2 and not settings.cluster.seeds and settings.cluster.quorum == "majority":
        log.warning(
            "supervisor: two members alone are no majority when one of them dies, and then serve nothing until both "
            "are started anew: use --members 3, also with fewer cores, or join other hosts"
        )

    async def story() -> int:
        return await Supervisor(found, arguments, named=settings.log.format == "text").run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story())
