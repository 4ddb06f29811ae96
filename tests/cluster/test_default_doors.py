"""A member with no settings at all, looked at from outside: nothing of it is off loopback."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

LISTENS = "0A"
"""Of a TCP socket, in /proc/net/tcp."""
pytestmark = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="this system does not tell its sockets"
)


@pytest.fixture(scope="module")
def member() -> Iterator[ManagedMember]:
    with LocalCluster(members=1) as running:
        yield running.members[0]


def doors_of(member: ManagedMember) -> list[str]:
    """The addresses for clients, members, and HTTP."""
    http = re.search(r"HTTP at http://(\S+)", member.log.read_text(encoding="utf-8"))
    assert http is not None
    return [member.client_address, member.member_address, http[1]]


def sockets_of(pid: int, table: str) -> list[tuple[str, int, str]]:
    """Address, port and state of each socket of a process in this table of the system."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = str(entry.readlink())
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    found = []
    for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if words[9] in inodes:
            raw, _, port = words[1].partition(":")
            address = raw
            if len(raw) == 8:
                address = socket.inet_ntoa(struct.pack("<I", int(raw, 16)))
            found.append((address, int(port, 16), words[3]))
    return found


def test_a_member_listens_on_loopback_and_nowhere_else(member: ManagedMember) -> None:
    listening = {
        (address, port) for address, port, state in sockets_of(member.pid, "tcp") if state == LISTENS
    }
    assert listening == {("127.0.0.1", int(door.rpartition(":")[2])) for door in doors_of(member)}
    assert not [one for one in sockets_of(member.pid, "tcp6") if one[2] == LISTENS]


def test_it_has_no_socket_that_needs_no_connection(member: ManagedMember) -> None:
    """An answer to a forged address is what amplifiers are made of: there is no UDP, and no multicast."""
    for table in ("udp", "udp6", "raw", "raw6"):
        if Path(f"/proc/net/{table}").exists():
            assert sockets_of(member.pid, table) == []


def test_a_scan_of_its_ports_from_another_address_finds_nothing(member: ManagedMember) -> None:
    """From every address of this machine that is not loopback, and from others of loopback."""
    hosts = {"127.0.0.2"} | {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        # Nothing is sent: this asks the system which address it would use.
        outward.connect(("192.0.2.1", 9))
        hosts.add(outward.getsockname()[0])
    hosts -= {"127.0.0.1"}
    assert hosts
    for door in doors_of(member):
        port = int(door.rpartition(":")[2])
        for host in sorted(hosts):
            with socket.socket() as scanner:
                scanner.settimeout(2)
                assert scanner.connect_ex((host, port)), f"{host}:{port} is open"
