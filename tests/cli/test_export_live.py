"""`holdfast export`, `restore` and `verify` as they are typed, against real members."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.client.blocking import Client
from holdfast.wire.values import to_stored
from holdfast_lab.processes.fork_server import run_program
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = """
[partitions]
count = 31
[maps.default]
backups = 1
journal = "sync"
"""


def holdfast(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and standard output."""
    ended = run_program(arguments, timeout=240)
    # Spark's own processes may have something to say when they are ended; the command has not.
    assert "cli/main.py" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout or ended.stderr


def test_a_grid_goes_into_a_folder_and_back(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    with LocalCluster(2, CONFIG, data_dir=tmp_path / "files") as members:
        members.wait_settled()
        address = members.client_addresses()[0]
        with Client(address) as client:
            keys = [to_stored(number) for number in range(500)]
            client.put_columns("flights", keys, keys, ttl_ms=0)
        status, told = holdfast("export", "flights", "--to", folder, "-a", address, "--json")
        assert (status, json.loads(told)["rows"]) == (0, 500)
        status, told = holdfast("export", "verify", folder)
        assert (status, "all as written" in told) == (0, True)
        status, told = holdfast("restore", folder, "-a", address, "--rename", "flights=monday", "--json")
        assert (status, json.loads(told)["sound"]) == (0, True)
        status, told = holdfast("verify", "--spark", "-a", address, "--keys")
        assert (status, "62 equal, 0 differs" in told) == (0, True), told
        members.kill_all()
    status, told = holdfast(
        "verify", "--files", tmp_path / "files" / "m1", "--files", tmp_path / "files" / "m2"
    )
    assert (status, "62 equal, 0 differs, 0 older" in told) == (0, True), told
