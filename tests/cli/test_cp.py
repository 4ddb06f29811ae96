"""`holdfast cp`: what there is, who holds it, and its end, by a real member."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.runtime.in_process.test_embedded import member
from tests.runtime.in_process.test_embedded import run as alone
from tests.server.memory_cluster import MemoryCluster

from holdfast.cli.main import holdfast
from holdfast.core.cp.cp_steps import decide_cp_step
from holdfast.core.model.cp import CpStep, CpStepKind, cp_request, partition_of_name
from holdfast.core.model.decisions import Decision
from holdfast.wire.values import to_stored

K = CpStepKind
SECRET = "a long enough secret"


def run(cluster: MemoryCluster, *given: str) -> Result:
    return CliRunner().invoke(holdfast, ["cp", *given, "-a", cluster.addresses()])


def do(cluster: MemoryCluster, group: str, kind: CpStepKind, name: str = "x", **fields: Any) -> None:
    """The primary takes this step."""
    partition = partition_of_name(group, 7)

    def deed() -> None:
        owner = cluster.owner(partition)
        request = cp_request(group, 7, CpStep(kind, **fields), name)
        held = owner.held[partition].open(request.map)
        decision = decide_cp_step(held.state, request)
        assert isinstance(decision, Decision)
        for update in decision.updates:
            owner.lane.set(owner.held[partition], request.map, update.key, update.value, 0, 0, 0)

    cluster.do(deed)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(2, 7) as running:
        yield running


def test_objects_are_listed_and_shown(cluster: MemoryCluster) -> None:
    assert json.loads(run(cluster, "list", "--json").stdout) == {"objects": [], "sessions": 0}
    do(cluster, "default", K.CREATE_SESSION, number=60_000, value=b"printer 7")
    do(cluster, "default", K.LOCK, "ledger", session=1, thread=3, uid=bytes(16))
    do(cluster, "default", K.ADD_AND_GET, "hits", number=5)
    do(cluster, "default", K.SET_REFERENCE, "config", value=to_stored("v2"))
    do(cluster, "default", K.TRY_SET_COUNT, "start", number=3)
    do(cluster, "eu", K.INIT_PERMITS, "jobs", number=4)
    listed = json.loads(run(cluster, "list", "--json").stdout)
    assert [(each["kind"], each["name"], each["group"], each["state"]) for each in listed["objects"]] == [
        ("latch", "start", "default", "count 3"),
        ("lock", "ledger", "default", "held by printer 7, fence 1"),
        ("long", "hits", "default", "5"),
        ("reference", "config", "default", "v2"),
        ("semaphore", "jobs", "eu", "4 permits available, 0 clients hold some"),
    ]
    assert listed["sessions"] == 1
    assert [
        one["name"] for one in json.loads(run(cluster, "list", "--group", "eu", "--json").stdout)["objects"]
    ] == ["jobs"]
    told = run(cluster, "list").stdout
    assert "held by printer 7" in told
    assert "1 sessions of clients" in told
    lock = json.loads(run(cluster, "show", "lock", "ledger", "--json").stdout)
    assert lock["holders"] == [{"client": "printer 7", "session": 1, "holds": 1}]
    assert lock["fence"] == 1
    assert "printer 7" in run(cluster, "show", "lock", "ledger").stdout
    other = run(cluster, "show", "lock", "hits")
    assert other.exit_code == 2
    assert "no lock 'hits' in CP group 'default': there are latch start, lock ledger" in other.stderr


def test_the_operator_is_asked_before_an_object_is_destroyed(cluster: MemoryCluster) -> None:
    arguments = ["cp", "destroy", "long", "gone", "--group", "us", "-a", cluster.addresses()]
    declined = CliRunner().invoke(holdfast, arguments, input="n\n")
    assert declined.exit_code == 1
    assert "Destroy long gone@us? Its name cannot be used again" in declined.stderr


def test_a_destroyed_object_stays_in_the_list() -> None:
    def called(address: str, user: str, *words: str) -> Result:
        environ = {"HOLDFAST_SECURITY_USERNAME": user, "HOLDFAST_SECURITY_PASSWORD": SECRET}
        return CliRunner().invoke(holdfast, ["cp", *words, "-a", address], env=environ)

    users = {
        "users__root__passwords": [SECRET],
        "users__root__roles": ["admin"],
        "users__ada__passwords": [SECRET],
        "users__ada__roles": ["user"],
        "roles__user__rules": ["cp * read lock", "cluster * status"],
    }

    async def story() -> None:
        async with member(member__name="one", **users) as one:
            gone = "destroy", "lock", "ledger", "--group", "us", "--yes"
            denied = await asyncio.to_thread(called, one.client_address, "ada", *gone)
            assert (denied.exit_code, "destroy" in denied.stderr) == (1, True), denied.output
            for _ in range(2):
                done = await asyncio.to_thread(called, one.client_address, "root", *gone)
                assert done.exit_code == 0, done.output
                assert "lock ledger@us is destroyed" in done.stdout
            shown = await asyncio.to_thread(
                called, one.client_address, "root", "show", "lock", "ledger", "--group", "us"
            )
            assert shown.stdout == "lock ledger in group us: destroyed\n"
            wrong = await asyncio.to_thread(
                called, one.client_address, "root", "destroy", "lock", "ledger@us", "--yes"
            )
            assert (wrong.exit_code, "use --group" in wrong.stderr) == (2, True), wrong.output

    alone(story())
