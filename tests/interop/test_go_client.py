"""The official Go client, unchanged, against real member processes. Its side is `go`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.interop import recorded, strikes

from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.interop

FOLDER = Path(__file__).parent / "go"
PROGRAM = FOLDER / "target" / "interop"


def version() -> str:
    found = re.search(r"hazelcast-go-client v(\S+)", (FOLDER / "go.mod").read_text())
    assert found is not None
    return found[1]


@cache
def build() -> None:
    """Build the program, once: Go itself knows what has to be built anew. Without Go the test is skipped."""
    if shutil.which("go") is None:
        pytest.skip("needs Go 1.21")
    done = subprocess.run(
        ["go", "build", "-o", str(PROGRAM), "."],
        cwd=FOLDER, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"Go could not build the client's side: {done.stderr.strip()[-300:]}")


def start(scenario: str, members: LocalCluster, **options: Any) -> subprocess.Popen[str]:
    build()
    options.setdefault("addresses", members.client_addresses())
    options.setdefault("map", f"go-{uuid4()}")
    return subprocess.Popen(
        [str(PROGRAM), scenario, json.dumps(options)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], said: str | None = None) -> Any:
    try:
        out, err = process.communicate(said, timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        raise AssertionError(err[-5000:]) from None
    assert process.returncode == 0, err[-5000:]
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize(
    "unisocket", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_each_call(cluster: LocalCluster, *, unisocket: bool) -> None:
    found = finish(start("calls", cluster, unisocket=unisocket))["seen"]
    recorded.compare("go", version(), "table", found)


@pytest.mark.slow
def test_a_near_cache_is_fed(cluster: LocalCluster) -> None:
    found = finish(start("near", cluster, near=True))["seen"]
    assert found == {"again": 200, "hits": 200, "changed": 200, "cleared": True}
    recorded.compare("go", version(), "near cache", recorded.NEAR_CACHE)


@pytest.mark.slow
@pytest.mark.parametrize("unisocket", [False, True], ids=["smart", "unisocket"])
def test_members_are_killed_and_drained(*, unisocket: bool) -> None:
    with LocalCluster(members=strikes.MEMBERS) as cluster:
        cluster.wait_settled()
        writing = start("faults", cluster, unisocket=unisocket)
        assert writing.stdin is not None
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"

        def next_stage() -> None:
            assert writing.stdin is not None
            writing.stdin.write("drain\n")
            writing.stdin.flush()

        strikes.kill_and_drain(cluster, next_stage)
        seen = finish(writing, "stop\n")["seen"]
    assert seen["acknowledged"] > 500
    assert seen["wrong"] == []
    # Where it speaks with one member alone, this client tells the next one of no listener (docs/compatibility.md).
    assert unisocket or seen["heard"] == 97 + 50
    killed, *drained = seen["errors"]
    assert killed <= 3, seen["failures"]
    assert sum(drained) <= 2, "those that the client has forgotten"


@pytest.mark.slow
@pytest.mark.parametrize(("password", "admitted"), [("a long enough secret", True), ("wrong", False)])
def test_authentication(guarded: LocalCluster, password: str, *, admitted: bool) -> None:
    options = {"cluster": "guarded", "username": "ada", "password": password, "patience_s": 1}
    found = finish(start("login", guarded, **options))
    assert (found.get("seen") == "v") is admitted
    assert ("refused" in found) is not admitted
