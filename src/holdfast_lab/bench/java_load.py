"""Transactions through official Java clients: the load program of `bench/java` as a process that takes orders, and the
members of Ignite, which the same program starts.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from holdfast_lab.bench import systems
from holdfast_lab.bench.load import cores
from holdfast_lab.bench.requests import clock_ns
from holdfast_lab.bench.systems import System
from holdfast_lab.processes.local_cluster import HOST, free_ports

FOLDER = Path(__file__).parent / "java"
TARGET = FOLDER / "target"
BUILD_S = 300.0
START_S = 90.0
PATIENCE_S = 90.0
"""How much longer than its load an order may take."""
OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.text",
    "java.base/java.time",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks",
    "java.base/jdk.internal.access",
    "java.base/jdk.internal.misc",
    "java.base/sun.nio.ch",
    "java.base/sun.reflect.generics.reflectiveObjects",
    "java.base/sun.util.calendar",
    "java.management/com.sun.jmx.mbeanserver",
    "java.management/sun.management",
    "jdk.internal.jvmstat/sun.jvmstat.monitor",
    "jdk.management/com.sun.management.internal",
)
"""Parts of Java that Ignite needs access to, by its manual."""


def build_problem() -> str:
    """Compile the program and fetch both systems, unless that is done. Returns the reason why it cannot run here;
    empty: it can.
    """
    missing = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not found: install Java 17 and Maven"
    TARGET.mkdir(exist_ok=True)
    built = TARGET / ".built"
    with (TARGET / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another run may build at the same time.
        sources = [FOLDER / "pom.xml", *(FOLDER / "src").rglob("*.java")]
        if built.exists() and built.stat().st_mtime >= max(each.stat().st_mtime for each in sources):
            return ""
        command = ["mvn", "--quiet", "--batch-mode", "-Dstyle.color=never", "compile"]
        try:
            done = subprocess.run(
                command, cwd=FOLDER, capture_output=True, text=True, timeout=BUILD_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"Maven has not finished in {BUILD_S:g} s"
        if done.returncode:
            return f"Maven could not build {FOLDER}: {done.stdout.strip()[-300:]}"
        built.touch()
    return ""


def hazelcast_jar() -> Path:
    """Member and client."""
    (found,) = (TARGET / "hazelcast").glob("hazelcast-[0-9]*.jar")
    return found


def versions() -> dict[str, str]:
    (ignite,) = (TARGET / "ignite").glob("ignite-core-*.jar")
    return {
        "Hazelcast": hazelcast_jar().stem.removeprefix("hazelcast-"),
        "Ignite": ignite.stem.removeprefix("ignite-core-"),
    }


def java(program: str, heap: str, *arguments: object, java_options: Sequence[str] = ()) -> list[str]:
    """A command."""
    opens = [part for one in OPENED for part in ("--add-opens", f"{one}=ALL-UNNAMED")]
    path = os.pathsep.join(str(TARGET / each) for each in ("classes", "hazelcast/*", "ignite/*"))
    options = [f"-Xms{heap}", f"-Xmx{heap}", "-DIGNITE_QUIET=true", "-DIGNITE_NO_ASCII=true"]
    options += ["-DIGNITE_UPDATE_NOTIFIER=false", "-Djava.net.preferIPv4Stack=true"]
    return [
        "java",
        *options,
        *java_options,
        *opens,
        "-cp",
        path,
        f"holdfast.bench.{program}",
        *map(str, arguments),
    ]


@contextmanager
def ignite(
    members: int, client_threads: int, heap: str = "1g", java_options: Sequence[str] = ()
) -> Iterator[System]:
    """Ignite members on loopback and on the servers' core, with one transactional cache with a sync backup. All
    else is by the release's defaults, except that each has `client_threads` threads for requests of clients.
    """
    client_ports, discovery_ports, communication_ports = (
        ports[start::3] for ports in [free_ports(3 * members)] for start in range(3)
    )
    seeds = ",".join(f"{HOST}:{port}" for port in discovery_ports)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-ignite-")))
        pids = []
        for ports in zip(client_ports, discovery_ports, communication_ports, strict=True):
            work = folder / str(ports[0])
            work.mkdir()
            command = java(
                "IgniteMember", heap, work, client_threads, *ports, seeds, java_options=java_options
            )
            with systems.server_core():
                program = stack.enter_context(Program(command, work / "log"))
            program.expect("ready", START_S)
            pids.append(program.pid)
        yield System("Ignite", pids, [(HOST, port) for port in client_ports], [])


class Program:
    """A Java process that answers in lines, and ends with its standard input."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        systems.end(self._process)
        self._process.stdout.close()

    def order(self, text: str, patience_s: float) -> dict[str, Any]:
        with suppress(BrokenPipeError):  # The log says more.
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        return json.loads(self.expect("{", patience_s))

    def expect(self, start: str, patience_s: float) -> str:
        """The next line with this start."""
        watchdog = threading.Timer(patience_s, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                if line.startswith(start):
                    return line
        finally:
            watchdog.cancel()
        raise RuntimeError(
            f"{self._log.name}: no answer in {patience_s:g} s\n{self._log.read_text(errors='replace')[-3000:]}"
        )


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The outcome of one load."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Processor time of all members for each committed transaction."""
    client_busy: float
    """Cores that the client used."""
    committed: int
    rolled_back: int
    unknown: int
    errors: dict[str, int]
    checked: int
    """Entries that were compared with what was committed."""
    wrong: int
    examples: list[str]


class JavaLoad:
    """The load of one system."""

    def __init__(self, system: System, program: Program) -> None:
        self.system = system
        self.pids = [*system.pids, program.pid]
        """Those of the members and of the client."""
        self._program = program
        program.order("fill", PATIENCE_S)

    def run(self, load: str, seconds: float, **options: object) -> LoadSample:
        """Load the system for some seconds, then compare the entries."""
        words = " ".join(f"{name}={value}" for name, value in {**options, "seconds": seconds}.items())
        client_ns = clock_ns(self._program.pid)
        members_ns = sum(map(clock_ns, self.system.pids))
        told = self._program.order(f"{load} {words}", seconds + PATIENCE_S)
        members_ns = sum(map(clock_ns, self.system.pids)) - members_ns
        client_ns = clock_ns(self._program.pid) - client_ns
        check = self._program.order("check", PATIENCE_S)
        return LoadSample(
            told["in_time"] / told["seconds"],
            told["p50_us"] / 1000,
            told["p99_us"] / 1000,
            members_ns / 1000 / max(told["committed"], 1),
            client_ns / 1e9 / told["seconds"],
            told["committed"],
            told["rolled_back"],
            told["unknown"],
            told["errors"],
            check["checked"],
            check["wrong"],
            check["examples"],
        )


@contextmanager
def java_load(
    system: System, folder: Path, heap: str = "512m", java_options: Sequence[str] = ()
) -> Iterator[JavaLoad]:
    """A client of this system, on the generator's core."""
    kind = "ignite" if system.name == "Ignite" else "hazelcast"
    addresses = ",".join(f"{host}:{port}" for host, port in system.addresses)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores().generator})
    try:
        command = java("TransactionLoad", heap, kind, addresses, java_options=java_options)
        program = Program(command, folder / f"{system.name}.log")
    finally:
        os.sched_setaffinity(0, before)
    with program:
        yield JavaLoad(system, program)
