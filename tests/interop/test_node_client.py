"""The official Node.js client, unchanged, against real member processes. Its side is `node/client.cjs`."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.interop import recorded, strikes

from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.interop

FOLDER = Path(__file__).parent / "node"


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """What `package-lock.json` names, installed once."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs Node.js 20 and npm")
    if not (FOLDER / "node_modules" / "hazelcast-client").is_dir():
        done = subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.skip(f"npm could not install hazelcast-client: {done.stderr.strip()[-300:]}")


def start(scenario: str, cluster: LocalCluster, **options: Any) -> subprocess.Popen[str]:
    options.setdefault("addresses", cluster.client_addresses())
    options.setdefault("map", f"{scenario}-{uuid4()}")
    return subprocess.Popen(
        ["node", str(FOLDER / "client.cjs"), scenario, json.dumps(options)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], said: str | None = None) -> dict[str, Any]:
    try:
        out, err = process.communicate(said, timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def run(scenario: str, cluster: LocalCluster, **options: Any) -> Any:
    return finish(start(scenario, cluster, **options))["seen"]


def version() -> str:
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    return str(lock["packages"]["node_modules/hazelcast-client"]["version"])


def test_a_near_cache_is_fed(cluster: LocalCluster) -> None:
    assert run("near", cluster, near=True) == {"again": 200, "hits": 200, "changed": 200, "cleared": None}
    recorded.compare("node", version(), "near cache", recorded.NEAR_CACHE)


@pytest.mark.parametrize(
    "smart", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_the_table_of_calls(cluster: LocalCluster, smart: bool) -> None:
    recorded.compare("node", version(), "table", run("table", cluster, smart=smart))


@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_each_call(cluster: LocalCluster, smart: bool) -> None:
    assert run("calls", cluster, smart=smart) == {
        "put": [None, 1],
        "get": [2, None],
        "contains": [True, False, True],
        "remove": [2, None],
        "object": {"delay": 11},
        "delete": [None, None],
        "conditions": [None, None, 1, 1, False, True, True, True, False],
        "evict": [True, False],
        "empty": [True, 0],
        "sizes": [300, 3, 300, 300, 300, 300],
        "all": [[1, "v1"], [2, "v2"]],
        "view": ["kept", 1, 60_000, 30_000],
        "setTtl": [True, 90_000, None],
        "timed": [None, 1],
        "cleared": 0,
        "objects": True,
    }


@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_listeners(cluster: LocalCluster, smart: bool) -> None:
    seen = run("listeners", cluster, smart=smart)
    assert seen["removed"] is True
    heard = seen["heard"]
    assert [line for line in heard if line[1] == "a"] == [
        ["added", "a", 1, None],
        ["updated", "a", 2, 1],
        ["removed", "a", None, 2],
    ]
    assert [line for line in heard if line[1] == "b"] == [["added", "b", 3, None], ["expired", "b", None, 3]]
    assert heard[-1] == ["cleared", 2]
    assert len(heard) == 8


def test_other_operations_are_refused_by_name(cluster: LocalCluster) -> None:
    refusals = run("unsupported", cluster)
    for refusal, name in zip(
        refusals,
        ("Map.addIndex", "Map.aggregate", "Map.valuesWithPredicate", "Sql.execute"),
        strict=True,
    ):
        assert refusal is not None, name
        assert refusal["message"].startswith(name)
        assert "is not supported by Holdfast" in refusal["message"]


@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_the_loss_of_a_member(smart: bool) -> None:
    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        writing = start("loss", cluster, smart=smart)
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"
        cluster.kill(
            cluster.members[0]
        )  # the first address of the list: the one that a unisocket client uses, too
        time.sleep(3)
        seen = finish(writing, "stop\n")["seen"]
        assert seen["acknowledged"] > 500
        assert seen["wrong"] == []


@pytest.mark.slow
@pytest.mark.parametrize("smart", [True, False], ids=["smart", "unisocket"])
def test_members_are_killed_and_drained(smart: bool) -> None:
    with LocalCluster(members=strikes.MEMBERS) as cluster:
        cluster.wait_settled()
        writing = start("loss", cluster, smart=smart)
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"
        strikes.kill_and_drain(cluster, lambda: None)
        seen = finish(writing, "stop\n")["seen"]
    assert seen["acknowledged"] > 500
    assert seen["wrong"] == []


@pytest.mark.parametrize(
    ("options", "admitted"),
    [
        ({"security": {"usernamePassword": {"username": "ada", "password": "a long enough secret"}}}, True),
        ({"security": {"token": {"token": "an opaque token"}}}, True),
        ({"security": {"usernamePassword": {"username": "ada", "password": "wrong"}}}, False),
        ({"security": {"token": {"token": "another token"}}}, False),
        ({}, False),
        ({"security": {"token": {"token": "an opaque token"}}, "clusterName": "dev"}, False),
    ],
    ids=["password", "token", "wrong password", "wrong token", "nobody", "wrong cluster"],
)
def test_authentication(guarded: LocalCluster, options: dict[str, Any], admitted: bool) -> None:
    found = finish(start("login", guarded, patience=800, **{"clusterName": "guarded", **options}))
    if admitted:
        assert found == {"seen": "v"}
    else:
        assert "refused" in found
