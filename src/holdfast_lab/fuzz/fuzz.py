"""Fuzzes the client, member and HTTP ports of a real cluster, while another client must not notice.

    python -m holdfast_lab fuzz --messages 100000 --seed 7
    python -m holdfast_lab fuzz --seed 7 --only 1234          # repeat a single exchange

Three members run as processes. Threads send the exchanges that `holdfast_lab.fuzz.hostile` makes, while a
separate process sets and gets one key all the time. The run fails if a member has ended, does not answer within
`HANG_S`, left the cluster, had an internal error, or took more memory than allowed; or if the client got a
wrong answer. The client's waiting time is measured at rest first, and then during the run.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console

from holdfast.client.blocking import Client
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.ids import SECOND
from holdfast.errors import HoldfastError
from holdfast.runtime.doors.connection_log import FAULTY
from holdfast.runtime.peering.member_handshake import OPENING_BYTES
from holdfast.wire.values import to_stored
from holdfast_lab.fuzz.crowds import TurnMeter
from holdfast_lab.fuzz.hostile import CLIENTS, HTTP, MEMBERS, OWN, Facts, Talk, talk
from holdfast_lab.fuzz.rule_oracle import fuzz_rules
from holdfast_lab.fuzz.secured import channel_of, config_of, connected
from holdfast_lab.processes.campaign import Campaign, CampaignVerdict, run_campaign
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

THREADS = 4
LINGERING = 25
LOOK_S = 1.0
HANG_S = 20.0
"""A member that has not answered for so long hangs."""
WAIT_S = 0.05
"""How long a stranger waits for an answer at the end of an exchange."""
CANARY_MAP, CANARY_PAUSE_S = "canary", 0.01
REST_S = 3.0
SLOWER_MAX = 5.0
FLOOR_MS = 5.0
"""Least waiting time at rest for the comparison: smaller ones depend on the machine."""
MEGABYTE = 1 << 20
SHOWN = 20


@dataclass(slots=True)
class Plan:
    messages: int
    seed: int
    only: int | None = None
    rate: float = 0.0
    megabytes: int = 1024
    """Memory that a member may take in addition to that at rest."""
    rest_s: float = REST_S
    users: bool = False
    """Whether messages come from a user with few permissions (`holdfast_lab.fuzz.rule_oracle`)."""
    tls: ClientTls | None = None
    secret: bool = True
    """Whether the members have a secret, known to the strangers at the member port; without one, anyone is
    admitted.
    """


@dataclass
class Verdict(CampaignVerdict):
    said: int = 0
    talks: int = 0
    rest_ms: float = 0.0
    under_ms: float = 0.0
    operations: int = 0
    grown_bytes: int = 0
    turn_ms: float = 0.0
    """Longest processor time of a member between two answers to another client."""
    doors: dict[str, int] = field(default_factory=dict)

    @property
    def slower(self) -> float:
        return self.under_ms / max(self.rest_ms, FLOOR_MS)

    def facts(self) -> dict[str, str]:
        return {
            "messages": f"{self.said:,} in {self.talks:,} exchanges, {self.seconds:.0f} s",
            "memory grew by at most": f"{self.grown_bytes // MEGABYTE} MB",
            "sets and gets of the client": f"{self.operations:,}",
            "its p99": f"{self.under_ms:.1f} ms, at rest {self.rest_ms:.1f} ms ({self.slower:.1f} times)",
            "longest turn": f"{self.turn_ms:.1f} ms of a member's processor between two answers",
            **{what: f"{count:,}" for what, count in sorted(self.doors.items())},
        }

    def failures(self) -> dict[str, int]:
        return {
            "wrong": len(self.problems),
            f"the client waits more than {SLOWER_MAX:g} times as long": int(self.slower > SLOWER_MAX),
            **super().failures(),
        }


# -- the client


@click.command()
@click.argument("addresses", nargs=-1)
@click.option("--ca")
@click.option("--certificate")
@click.option("--key")
def canary(addresses: tuple[str, ...], ca: str | None, certificate: str | None, key: str | None) -> None:
    """Set and get a key until standard input ends; print the results after each input line."""
    waits: list[int] = []
    faults: list[str] = []
    lock = threading.Lock()
    over = threading.Event()

    def live() -> None:
        number = 0
        tls = ClientTls(ca, certificate, key) if ca else None
        with Client(list(addresses), timeout_s=HANG_S, tls=tls) as client:
            while not over.is_set():
                number += 1
                began_ns = time.monotonic_ns()
                try:
                    client.set(CANARY_MAP, to_stored("key"), to_stored(number))
                    found = client.get(CANARY_MAP, to_stored("key"))
                    wrong = "" if found == to_stored(number) else f"set {number}, and got {found!r}"
                except HoldfastError as error:
                    wrong = f"{type(error).__name__}: {error}"
                with lock:
                    waits.append(time.monotonic_ns() - began_ns)
                    if wrong:
                        faults.append(wrong)
                time.sleep(CANARY_PAUSE_S)

    thread = threading.Thread(target=live)
    thread.start()
    for _ in sys.stdin:
        with lock:
            told = {"waits": sorted(waits), "faults": faults[:10]}
            waits.clear()
            faults.clear()
        click.echo(json.dumps(told))
    over.set()
    thread.join()


class Canary:
    def __init__(self, addresses: list[str], tls: ClientTls | None) -> None:
        shown = {"--ca": tls.ca, "--certificate": tls.certificate, "--key": tls.key} if tls else {}
        options = [word for name, path in shown.items() if path for word in (name, path)]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from holdfast_lab.fuzz.fuzz import canary; canary()",
                *options,
                *addresses,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self) -> tuple[float, int, list[str]]:
        """p99 in milliseconds, operations, and errors since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        waits = told["waits"]
        p99_ns = waits[min(len(waits) - 1, len(waits) * 99 // 100)] if waits else 0
        return p99_ns * 1000 / SECOND, len(waits), told["faults"]

    def close(self) -> None:
        with suppress(OSError):
            self._process.communicate(timeout=HANG_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


# -- the strangers


class Stranger:
    def __init__(self, run: Fuzz) -> None:
        self._run = run
        self._lingering: deque[socket.socket] = deque()
        self.number = -1
        self.thread = threading.Thread(target=self._live, daemon=True)

    def _live(self) -> None:
        while (number := self._run.next_talk()) is not None:
            self.number = number
            said = talk(self._run.plan.seed, number, self._run.facts)
            with suppress(OSError):
                self._say(said, self._run.door(said, number))
            self._run.note(said)
        for half_open in self._lingering:
            half_open.close()

    def _say(self, said: Talk, address: tuple[str, int]) -> None:
        connection = connected(address, 5, self._run.plan.tls)
        try:
            if said.challenged is not None:
                opening = _receive(connection, OPENING_BYTES)
                connection.sendall(said.challenged(opening, channel_of(connection)))
            for piece in said.pieces:
                connection.sendall(piece)
                if said.reads:
                    _drain(connection, 0)
            if said.reads and said.ends != "resets":
                _drain(connection, WAIT_S)
        except BaseException:
            connection.close()
            raise
        if said.ends == "stays":
            self._lingering.append(connection)
            if len(self._lingering) > LINGERING:
                self._lingering.popleft().close()
            return
        if said.ends == "resets":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def _receive(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise ConnectionResetError("closed")
        found += piece
    return found


def _drain(connection: socket.socket, wait_s: float) -> None:
    connection.settimeout(wait_s)
    with suppress(BlockingIOError, TimeoutError):
        while connection.recv(1 << 16):
            pass
    connection.settimeout(5)


# -- the run


class Fuzz(Campaign[Verdict]):
    """One cluster, and threads that send it malformed messages, in a single round."""

    rounds = 1

    def __init__(self, plan: Plan, console: Console, keep: Path | None = None) -> None:
        super().__init__(Verdict(), console, keep)
        self.plan = plan
        self._lock = threading.Lock()
        self._next = plan.only if plan.only is not None else 0
        self._over = False

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        plan = self.plan
        secret = secrets.token_hex(16) if plan.secret else ""
        config = f'[cluster]\nname = "fuzzed"\n[security]\nmember_secret = "{secret}"\n' + config_of(plan.tls)
        cluster = self._cluster = stack.enter_context(LocalCluster(3, config, log_dir=folder, tls=plan.tls))
        status = cluster.wait_settled()
        self._http = {member.name: str(cluster.status(member).http) for member in cluster.members}
        client = self._client = Canary(cluster.client_addresses(), plan.tls)
        stack.callback(client.close)
        uuids = tuple(row.uuid for row in status.members)
        self.facts = Facts("fuzzed", status.partitions.count, uuids, secret)
        time.sleep(plan.rest_s / 3)
        client.ask()
        time.sleep(plan.rest_s)
        self.verdict.rest_ms, _, faults = client.ask()
        self.verdict.problems += faults
        self._meters = [
            TurnMeter(member.pid, (host, int(port)), plan.tls)
            for member in cluster.members
            for host, _, port in (member.client_address.rpartition(":"),)
        ]
        self._began_s = time.monotonic()

    def round(self, number: int) -> str:
        self._say_all()
        return f"{self.verdict.said:,} messages"

    def judge(self) -> None:
        verdict = self.verdict
        verdict.turn_ms = max(meter.take_ms() for meter in self._meters)
        for meter in self._meters:
            meter.close()
        verdict.under_ms, verdict.operations, faults = self._client.ask()
        verdict.problems += [f"the client: {fault}" for fault in faults]
        for member in self._cluster.alive:
            with suppress(HoldfastError, OSError):
                for what, count in self._cluster.status(member).rejections.items():
                    verdict.doors[what] = verdict.doors.get(what, 0) + count
        verdict.problems += [what for what in verdict.doors if what.startswith((FAULTY, "read failed"))]

    def next_talk(self) -> int | None:
        with self._lock:
            verdict, plan = self.verdict, self.plan
            if self._over or verdict.said >= plan.messages or (plan.only is not None and verdict.talks):
                return None
            number = self._next
            self._next += 1
            early_s = verdict.said / plan.rate - (time.monotonic() - self._began_s) if plan.rate else 0.0
        if early_s > 0:
            time.sleep(early_s)
        return number

    def door(self, said: Talk, number: int) -> tuple[str, int]:
        member = self._cluster.members[number % len(self._cluster.members)]
        address = {MEMBERS: member.member_address, HTTP: self._http[member.name]}.get(
            said.door, member.client_address
        )
        host, _, port = address.rpartition(":")
        return host, int(port)

    def note(self, said: Talk) -> None:
        with self._lock:
            self.verdict.said += said.count
            self.verdict.talks += 1

    def _say_all(self) -> None:
        strangers = [Stranger(self) for _ in range(THREADS if self.plan.only is None else 1)]
        rest = {member.name: _resident(member) for member in self._cluster.members}
        for stranger in strangers:
            stranger.thread.start()
        while True:
            talking = any(stranger.thread.is_alive() for stranger in strangers)
            self._look(rest)
            if self.verdict.problems:
                self._over = True
                numbers = ", ".join(str(stranger.number) for stranger in strangers)
                self.verdict.problems.append(
                    f"talks under way or just over: {numbers} (--only NUMBER says one again)"
                )
            if self.verdict.problems or not talking:
                break
            time.sleep(LOOK_S)
        for stranger in strangers:
            stranger.thread.join(HANG_S)

    def _look(self, rest: dict[str, int]) -> None:
        wrong = self.verdict.problems
        for member in self._cluster.members:
            if not member.alive:
                wrong.append(
                    f"{member.name} has ended with status {member.process.returncode}:\n{member.log_tail()}"
                )
                continue
            grown = _resident(member) - rest[member.name]
            self.verdict.grown_bytes = max(self.verdict.grown_bytes, grown)
            if grown > self.plan.megabytes * MEGABYTE:
                wrong.append(f"{member.name} has taken {grown // MEGABYTE} MB more than at rest")
            why = self._silence_reason(member)
            if why:
                wrong.append(f"{member.name}: {why}")

    def _silence_reason(self, member: ManagedMember) -> str:
        """Why this member does not seem well; empty if it does."""
        deadline_s = time.monotonic() + HANG_S
        while member.alive:
            try:
                status = self._cluster.status(member)
            except (HoldfastError, OSError) as error:
                why = f"does not answer: {error}"
            else:
                names = [row.name for row in status.members]
                if len(names) == len(self._cluster.members):
                    return ""
                why = f"has {names} in its cluster"
            if time.monotonic() > deadline_s:
                return why
            time.sleep(LOOK_S)
        return ""


def _resident(member: ManagedMember) -> int:
    try:
        pages = Path(f"/proc/{member.pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main(plan: Plan, logs: Path | None) -> int:
    """Returns the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    if plan.users:
        return _main_of_users(plan, logs, console)
    folder = logs or Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"))
    status = run_campaign(
        Fuzz(plan, console, folder),
        f"fuzzing three members with {plan.messages:,} messages, seed {plan.seed}",
    )
    if status:
        console.print(f"the members' logs are in {folder}; again with --seed {plan.seed}", markup=False)
    return status


def _main_of_users(plan: Plan, logs: Path | None, console: Console) -> int:
    console.print(f"{plan.messages:,} messages of a user who may do little, seed {plan.seed}", markup=False)
    found = fuzz_rules(plan.messages, plan.seed, logs, only=plan.only, tls=plan.tls)
    console.print(
        f"{found.said:,} messages in {found.talks:,} talks, {found.seconds:.0f} s; of {found.answered:,} answers "
        f"{found.refused:,} say that it is not permitted; {found.ended:,} talks were ended by a member",
        markup=False,
    )
    for wrong in found.wrong[:SHOWN]:
        console.print(f"WRONG: {wrong}", markup=False)
    return int(bool(found.wrong))


__all__ = ["CLIENTS", "MEMBERS", "OWN", "Fuzz", "Plan", "Verdict", "main"]
