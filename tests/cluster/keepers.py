"""Member processes that keep files: each with its own settings, directory and ports, the same after an end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from holdfast.client.blocking import Client
from holdfast.core.model.member_status import MemberStatus
from holdfast_lab.processes.fork_server import COMMAND, run_program, start_program
from holdfast_lab.processes.local_cluster import HOST, LocalCluster, ManagedMember, free_ports

PARTITIONS = 31
SEGMENT_BYTES = 1 << 20
SETTINGS: dict[str, dict[str, object]] = {
    "cluster": {"heartbeat_ms": 100, "suspect_after_ms": 10_000},
    "partitions": {"count": PARTITIONS},
    "persistence": {"segment_bytes": SEGMENT_BYTES, "checkpoint_bytes": 1 << 20},
    "maps.default": {"journal": "sync"},
}


def toml(sections: dict[str, dict[str, object]]) -> str:
    """The text of a settings file."""
    lines: list[str] = []
    for name, keys in sections.items():
        lines.append(f"[{name}]")
        # The values are numbers, texts, truths and lists of texts: JSON writes them as TOML does.
        lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


class Keepers(LocalCluster):
    """Members with files under one folder. Whatever still runs when the block ends is ended."""

    def __init__(self, folder: Path, count: int = 3, *, start: bool = True, **settings: object) -> None:
        """`settings` of all members, with `__` for the dot: `maps__orders__journal="lazy"`."""
        super().__init__(0, log_dir=folder / "logs")
        self.folder = folder
        self.names = [f"m{number}" for number in range(1, count + 1)]
        ports = free_ports(2 * count)
        self.ports = {name: (ports[2 * n], ports[2 * n + 1]) for n, name in enumerate(self.names)}
        self.settings = settings
        self.start_at_once = start
        self.runs = 0

    def __enter__(self) -> Self:
        super().__enter__()
        if self.start_at_once:
            try:
                self.boot(*self.names)
                self.wait_settled()
            except BaseException:
                self.close()
                raise
        return self

    def directory(self, name: str) -> Path:
        """Where this member keeps its files."""
        return self.folder / name

    def config_of(self, name: str, settings: dict[str, object]) -> Path:
        """Write the settings file of a member."""
        sections = {section: dict(keys) for section, keys in SETTINGS.items()}
        member_port, client_port = self.ports[name]
        sections["member"] = {"name": name, "member_port": member_port, "client_port": client_port}
        sections["cluster"]["seeds"] = [f"{HOST}:{self.ports[one][0]}" for one in self.names]
        sections["persistence"]["directory"] = str(self.directory(name))
        for key, value in (self.settings | settings).items():
            section, _, last = key.rpartition("__")
            sections.setdefault(section.replace("__", "."), {})[last] = value
        file = self.folder / f"{name}.toml"
        file.write_text(toml(sections), encoding="utf-8")
        return file

    def spawn(self, name: str, *, command: list[str] | None = None, **settings: object) -> ManagedMember:
        """Start this member's process, with its own settings over the common ones; does not wait for anything."""
        self.runs += 1
        log = self.log_dir / f"{name}-{self.runs}.log"
        file = self.config_of(name, settings)
        with log.open("wb") as out:
            process = start_program([*(command or COMMAND), "start", "--config", str(file)], out, {})
        member_port, client_port = self.ports[name]
        member = ManagedMember(name, process, f"{HOST}:{client_port}", f"{HOST}:{member_port}", log)
        self.members.append(member)
        return member

    def boot(self, *names: str, **settings: object) -> list[ManagedMember]:
        """Start these at the same time, and wait until all are ready."""
        started = [self.spawn(name, **settings) for name in names]
        self.wait_ready(started)
        return started

    def running(self, name: str) -> ManagedMember:
        """The process of this member."""
        return next(member for member in self.alive if member.name == name)

    def kill_all(self) -> None:
        """`kill -9` of every process, at once."""
        running = self.alive
        for member in running:
            member.process.kill()
        for member in running:
            member.process.wait()

    def ended(self, member: ManagedMember, seconds: float = 120.0) -> int:
        """Wait for the end of a process; answers its exit status."""
        return member.process.wait(seconds)

    def said(self, member: ManagedMember) -> str:
        """All that a process has said."""
        return member.log.read_text(encoding="utf-8", errors="replace")

    def client(self, name: str = "") -> Client:
        """Our own client of one member (the oldest that runs)."""
        member = self.running(name) if name else self.alive[0]
        return Client(member.client_address, timeout_s=20)

    def holdfast(self, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run the command `holdfast`."""
        return run_program(words, seconds)

    def statuses(self) -> dict[str, MemberStatus]:
        """What each running member says of itself, by name."""
        return {member.name: self.status(member) for member in self.alive}


def until(reached: Callable[[], object], seconds: float = 120.0, missed: str = "it did not happen") -> None:
    """Wait for it; `missed` is what is said when it does not come in time."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, missed
        time.sleep(0.05)
