"""Real members as processes on loopback, for the demo, the chaos runs and the tests.

    with LocalCluster(members=3, config="backup_count = 1") as cluster:
        cluster.kill(cluster.members[1])         # a crash
        cluster.start_member()                   # another one joins
        cluster.wait_safe(60)                    # every partition has all its copies again
        cluster.drain(cluster.members[0])        # leaves in order, exit status 0

With a `data_dir` each member keeps its files in a directory of its own, and can be restarted with them:

        gone = cluster.kill_all()                # a power cut, as far as processes are concerned
        cluster.restart(gone)                    # the same names, ports and directories

All processes that it starts are ended by pid, whatever happens in between; it ends no others.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.actions.change_zone import CreateZone
from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast.config.addresses import format_address
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.member_status import MemberStatus
from holdfast.errors import HoldfastError
from holdfast_lab.processes.fork_server import COMMAND, Process, start_program

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
_RETURNED: deque[int] = deque(maxlen=1000)
"""The latest ports that `free_ports` has returned."""
"""Below the range from which the kernel takes ports for outgoing connections, to avoid collisions."""

UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
LOG_TAIL_LINES = 25
POLL_S = 0.05
PATIENCE_S = 120.0
"""How long to wait for members. Members on a busy machine need several times as long as on an idle one, and only
failures wait to the end.
"""
STATUS_S = 30.0
"""The same for the response to one question."""

Status = MemberStatus


class ClusterError(HoldfastError):
    """A member process misbehaved; the message ends with the last lines of the logs."""


@dataclass(slots=True, eq=False)
class ManagedMember:
    name: str
    process: Process
    client_address: str
    member_address: str
    log: Path
    lite: bool = False
    uuid: str = ""
    """Known once the member is ready; a new one after each start."""
    starts: int = 1
    """Number of starts of a process with this name; each has its own log."""
    started_s: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def free_ports(count: int, taken: Iterable[int] = ()) -> list[int]:
    """Ports that earlier calls have not returned lately: their members may be about to listen. Another process may
    still take one first: members report that.
    """
    avoid = {*taken, *_RETURNED}
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if port in avoid:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        _RETURNED.append(port)
        if len(found) == count:
            return found
    raise ClusterError(f"no {count} free ports between {PORTS.start} and {PORTS.stop} on {HOST}")


class LocalCluster:
    """Member processes on loopback. A context manager: members are ready when the block begins, and gone after it."""

    def __init__(
        self,
        members: int = 3,
        config: str = "",
        *,
        log_dir: Path | str | None = None,
        data_dir: Path | str | None = None,
        lite_members: int = 0,
        ready_timeout: float = PATIENCE_S,
        grace: float = 2.0,
        address_space: int = 0,
        user: tuple[str, str] | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """`config`: text of a TOML file for every member, without seeds and ports, which are chosen here.

        `log_dir`: folder for logs (temporary by default). `data_dir`: each member's `persistence.directory`
        is the folder with its name in there. `grace`: seconds that members have to end by themselves after
        the block, before they are killed. `address_space`: most bytes that a member may map (`RLIMIT_AS`); 0:
        no limit. `user`: name and password of a user who may see the status. `tls`: for members that use TLS.
        """
        self.members: list[ManagedMember] = []
        self.data_members = members
        self.lite_members = lite_members
        self.config = config
        self.ready_timeout = ready_timeout
        self.grace = grace
        self.address_space = address_space
        self._user = user[0] if user else None
        self._password = user[1] if user else None
        self._tls = tls
        self._temporary = tempfile.TemporaryDirectory(prefix="holdfast-") if log_dir is None else None
        self.log_dir = Path(self._temporary.name if self._temporary else str(log_dir))
        self.data_dir = Path(data_dir) if data_dir is not None else None
        self._ports: set[int] = set()
        self.seen_s = 0.0
        """When the last wait first saw its condition, by the monotonic clock."""

    # -- the block

    def __enter__(self) -> Self:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        try:
            self.start_members(self.data_members)
            self.start_members(self.lite_members, lite=True)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            error.add_note(self.log_tails())
        self.close()

    def close(self) -> None:
        """End every running member: with two signals, so at once, and by a kill after `grace` seconds."""
        running = self.alive
        for _ in range(2):
            for member in running:
                member.process.send_signal(signal.SIGTERM)
            time.sleep(POLL_S)
        deadline = time.monotonic() + self.grace
        for member in running:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        if self._temporary is not None:
            self._temporary.cleanup()

    # -- members

    @property
    def alive(self) -> list[ManagedMember]:
        return [member for member in self.members if member.alive]

    def client_addresses(self) -> list[str]:
        return [member.client_address for member in self.alive]

    def start_member(self, lite: bool = False, *, wait: bool = True) -> ManagedMember:
        """Start one more member, which joins the running ones. With `wait`, it is ready on return."""
        member_port, client_port = free_ports(2, self._ports)
        self._ports |= {member_port, client_port}
        name = f"m{len(self.members) + 1}"
        host = self.host_of(name)
        doors = (format_address(host, member_port), format_address(host, client_port))
        seeds = [running.member_address for running in self.alive] or [doors[0]]
        member = self._start(name, doors, seeds, self.log_dir / f"{name}.log", lite=lite)
        if wait:
            self.wait_ready([member])
        return member

    def restart(self, members: Iterable[ManagedMember], *, wait: bool = True) -> list[ManagedMember]:
        """Restart ended members, all at the same time, with the same names, ports and directories.

        Their seeds are the running members; when none runs, each other.
        """
        gone = list(members)
        seeds = [running.member_address for running in self.alive]
        seeds = seeds or [member.member_address for member in gone]
        started = []
        for member in gone:
            starts = member.starts + 1
            log = self.log_dir / f"{member.name}-{starts}.log"
            doors = (member.member_address, member.client_address)
            started.append(self._start(member.name, doors, seeds, log, lite=member.lite, starts=starts))
        if wait:
            self.wait_ready(started)
        return started

    def directory(self, member: ManagedMember) -> Path:
        """Only with a `data_dir`."""
        assert self.data_dir is not None, "the cluster has no data_dir"
        return self.data_dir / member.name

    # -- per member; a cluster in special surroundings overrides these

    def host_of(self, name: str) -> str:
        """The address at which other members reach this one; its ports of the last start use it, too."""
        return HOST

    def program(self, name: str) -> list[str]:
        return COMMAND

    def arguments(self, name: str) -> list[str]:
        return []

    def environment(self, name: str) -> dict[str, str]:
        return {}

    def _start(
        self, name: str, doors: tuple[str, str], seeds: list[str], log: Path, *, lite: bool, starts: int = 1
    ) -> ManagedMember:
        member_port, client_port = (door.rpartition(":")[2] for door in doors)
        command = [*self.program(name), "start", "--name", name]
        command += ["--member-port", member_port, "--client-port", client_port]
        for seed in seeds:
            command += ["--seed", seed]
        if lite:
            command.append("--lite")
        if self.data_dir is not None:
            directory = self.data_dir / name
            directory.mkdir(parents=True, exist_ok=True)
            command += ["--set", f"persistence.directory={directory}"]
        command += self.arguments(name)
        if self.config:
            file = self.log_dir / "holdfast.toml"
            if not file.exists() or file.read_text(encoding="utf-8") != self.config:
                # Not for each member: another one that has just started may be reading it.
                file.write_text(self.config, encoding="utf-8")
            command += ["--config", str(file)]
        with log.open("wb") as out:
            process = start_program(command, out, self.environment(name))
        if self.address_space:
            # From outside: code between fork and exec is not safe in a process with threads.
            resource.prlimit(process.pid, resource.RLIMIT_AS, (self.address_space, self.address_space))
        member = ManagedMember(name, process, doors[1], doors[0], log, lite, starts=starts)
        self.members.append(member)
        return member

    def start_members(self, count: int, *, lite: bool = False) -> list[ManagedMember]:
        started = [self.start_member(lite, wait=False) for _ in range(count)]
        self.wait_ready(started)
        return started

    def wait_ready(self, members: Iterable[ManagedMember] | None = None) -> None:
        """Wait until these members (default: all) have logged that they joined."""
        waiting = list(self.alive if members is None else members)
        deadline = time.monotonic() + self.ready_timeout
        while waiting:
            for member in list(waiting):
                member.uuid = _uuid_when_ready(member.log)
                if member.uuid:
                    waiting.remove(member)
                elif not member.alive:
                    raise self._failure(
                        f"member {member.name} ended with status {member.process.returncode} before it was ready"
                    )
            if waiting and time.monotonic() > deadline:
                names = ", ".join(member.name for member in waiting)
                raise self._failure(f"not ready after {self.ready_timeout:g} s: {names}")
            if waiting:
                time.sleep(POLL_S)

    def kill(self, member: ManagedMember) -> None:
        member.process.kill()
        member.process.wait()

    def kill_all(self) -> list[ManagedMember]:
        """SIGKILL every running member in one loop, then wait for their ends. Returns them."""
        victims = self.alive
        for member in victims:
            member.process.kill()
        for member in victims:
            member.process.wait()
        return victims

    def drain(self, member: ManagedMember, wait: bool = True, timeout: float = PATIENCE_S) -> None:
        """Ask a member to leave (SIGTERM); with `wait`, until it has left with exit status 0."""
        member.process.send_signal(signal.SIGTERM)
        if wait:
            self.wait_drained(member, timeout)

    def wait_drained(self, member: ManagedMember, timeout: float = PATIENCE_S) -> None:
        try:
            status = member.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self._failure(
                f"member {member.name} has not left {timeout:g} s after it was asked to"
            ) from None
        if status != 0:
            raise self._failure(
                f"member {member.name} ended with status {status} instead of leaving in order"
            )

    # -- status

    def status(self, member: ManagedMember | None = None) -> Status:
        """The cluster's status from this member; by default, from the oldest running one."""
        if member is None:
            member = self._oldest()
        with Client(
            member.client_address,
            username=self._user,
            password=self._password,
            timeout_s=STATUS_S,
            tls=self._tls,
        ) as client:
            return client.status()

    def wait_safe(self, timeout: float = PATIENCE_S) -> Status:
        """Wait until the running members agree on the member list and the table, and no partition lacks a
        copy. Returns the last status.
        """
        return self._wait(self._unsafe_reason, timeout, "safe")

    def wait_settled(self, timeout: float = PATIENCE_S) -> Status:
        """Like `wait_safe`; also no partition is migrating or about to, in two successive statuses."""
        return self._wait(self._unsettled_reason, timeout, "settled", looks=2)

    def create_zone(self, name: str, replicas: int, scale_down_s: int) -> str:
        """Returns a summary. Replicas move to a new member at once, and away from a member that has been
        absent for `scale_down_s`.
        """
        zone = CreateZone(name, replicas=replicas, scale_up_s=0, scale_down_s=scale_down_s)
        return act_at_any(parse_addresses(self.client_addresses()), Credentials(), zone).message

    def wait_served(self, timeout: float = PATIENCE_S) -> Status:
        """Wait until every partition has a running owner, with or without its backups."""
        return self._wait(_unserved_reason, timeout, "served", everyone=True)

    def _wait(
        self,
        problem: Callable[[list[Status]], str],
        timeout: float,
        wanted: str,
        looks: int = 1,
        *,
        everyone: bool = False,
    ) -> Status:
        """Wait until `problem` returns an empty text in `looks` successive statuses with the same partition
        table. `everyone`: `problem` needs the status of every member.
        """
        deadline = time.monotonic() + timeout
        why = "no member runs"
        seen: list[int] = []
        while time.monotonic() < deadline:
            looked_s = time.monotonic()
            try:
                statuses = self._statuses(None if everyone else problem)
            except (HoldfastError, OSError) as failure:
                why = str(failure)
                seen = []
            else:
                why = problem(statuses)
                version = statuses[0].table.version if statuses else 0
                seen = [] if why else [*(earlier for earlier in seen if earlier == version), version]
                if len(seen) == 1:
                    self.seen_s = looked_s
                if len(seen) == looks:
                    return statuses[0]
            time.sleep(4 * POLL_S)
        raise self._failure(f"not {wanted} after {timeout:g} s: {why}")

    def _statuses(self, problem: Callable[[list[Status]], str] | None) -> list[Status]:
        """The members' statuses; only that of the oldest member if `problem` already finds a problem in it."""
        running = self.alive
        statuses: list[Status] = []
        for member in running:
            statuses.append(self.status(member))
            if problem is not None and len(statuses) == 1 and problem(statuses):
                break
        return statuses

    def _unsafe_reason(self, statuses: list[Status]) -> str:
        """The first unmet condition of `wait_safe`; empty: none. Likewise `_unsettled_reason`, `_unserved_reason`."""
        here = {member.uuid for member in self.alive}
        if not statuses:
            return "no member runs"
        for status in statuses:
            known = {member.uuid for member in status.members}
            if known != here:
                return f"{status.name} sees {len(known)} members, but {len(here)} run"
            if not status.safe:
                return f"{status.name} says: {status.unsafe_reason or 'not safe'}"
        stamps = {status.table.stamp for status in statuses}
        return "" if len(stamps) == 1 else "the members have different partition tables"

    def _unsettled_reason(self, statuses: list[Status]) -> str:
        if why := self._unsafe_reason(statuses):
            return why
        for status in statuses:
            moving = status.migrations.active + status.migrations.queued
            if moving:
                return f"{status.name} counts {moving} migrations"
            idle = [
                row.name for row in status.members if not row.lite and not row.outside and not row.primaries
            ]
            if idle:
                return f"{', '.join(idle)} own no partition yet"
        return ""

    def log_tails(self) -> str:
        last = {member.name: member for member in self.members}
        return "\n".join(
            f"--- {member.name} (pid {member.pid}) ---\n{member.log_tail()}" for member in last.values()
        )

    def _oldest(self) -> ManagedMember:
        running = self.alive
        if not running:
            raise self._failure("no member runs")
        return running[0]

    def _failure(self, what: str) -> ClusterError:
        return ClusterError(f"{what}\n{self.log_tails()}")


def _unserved_reason(statuses: list[Status]) -> str:
    if not statuses:
        return "no member runs"
    served = sum(status.partitions.serving for status in statuses)
    count = statuses[0].partitions.count
    return (
        "" if served >= count else f"{served} of {count} partitions are served; {statuses[0].unsafe_reason}"
    )


def _uuid_when_ready(log: Path) -> str:
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if "ready" in line and (found := UUID.search(line)):
                    return found.group()
    except FileNotFoundError:
        pass
    return ""
