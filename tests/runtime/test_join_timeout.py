"""`cluster.join_timeout_ms`: a member that finds no cluster in this time ends, and says what may help."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from holdfast import Member
from holdfast.config import load
from holdfast_lab.processes.local_cluster import free_ports


def unused_addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(2)]


def start(*arguments: str) -> subprocess.Popen[str]:
    """A member of its own process, with free ports, whose first seed is not there."""
    seeds = ",".join(unused_addresses())
    command = [sys.executable, "-m", "holdfast", "start", "--member-port", "0", "--client-port", "0"]
    return subprocess.Popen(
        [*command, "--set", f"cluster.seeds={seeds}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_member_that_finds_no_cluster_in_time_ends_with_an_error() -> None:
    process = start("--set", "cluster.join_timeout_ms=1000")
    began_s = time.monotonic()
    try:
        _, told = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 4
    assert time.monotonic() - began_s > 1
    last = told.splitlines()[-1]
    assert last.startswith("Error: not in a cluster after 1 s; seeds: 127.0.0.1:")
    assert "Start the first seed" in last and "cluster.join_timeout_ms" in last
    assert "Traceback" not in told


def test_a_member_waits_for_ever_unless_told_otherwise() -> None:
    assert load().cluster.join_timeout_ms == 0
    process = start()
    try:
        assert process.stdout is not None
        assert any(" starting: clients at " in line for line in process.stdout)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.terminate()
        assert process.wait(120) == 0, "it leaves before it has found a cluster"
    finally:
        process.kill()
        process.communicate()


def test_a_member_in_a_program_gives_up_in_time_too() -> None:
    settings = {"member.member_port": 0, "member.client_port": 0, "cluster.join_timeout_ms": 300}
    seeds = unused_addresses()

    async def story() -> None:
        with pytest.raises(TimeoutError, match=r"in no cluster after 0\.3 s"):
            await Member(load(None, {}, {**settings, "cluster.seeds": seeds})).start()

    asyncio.run(story())
