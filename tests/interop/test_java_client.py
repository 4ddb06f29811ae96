"""The official Java clients, unchanged, against real member processes. Their side is `java/src`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.interop import recorded, strikes

from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.interop

FOLDER = Path(__file__).parent / "java"
CLASSES = FOLDER / "target" / "classes"
CLIENTS = FOLDER / "target" / "clients"
NEWEST = "5.6.0"
OLDER = ["4.2.8", "5.0.5", "5.3.8", "5.5.0"]

LOG_LINES_MAX = 60
"""What the client may write of one session to its log; it begins with a page of its own."""


def is_compiled() -> bool:
    """Whether no source is newer than the classes."""
    made = [file.stat().st_mtime for file in (CLASSES / "holdfast").rglob("*.class")]
    sources = [file.stat().st_mtime for file in (FOLDER / "src").rglob("*.java")]
    return bool(made) and max(sources) <= min(made)


def built(version: str) -> None:
    """Maven has compiled our side, as it is now, and fetched this client; without it the test is skipped."""
    if is_compiled() and (CLIENTS / f"hazelcast-{version}.jar").is_file():
        return
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("needs Maven and a JDK of Java 17")
    done = subprocess.run(
        ["mvn", "--quiet", "--batch-mode", *([] if version == NEWEST else ["-Pversions"]), "compile"],
        cwd=FOLDER, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"Maven could not build the Java client's side: {done.stdout.strip()[-300:]}")


def start(
    program: str, what: str, members: LocalCluster, version: str = NEWEST, **options: Any
) -> subprocess.Popen[str]:
    built(version)
    options.setdefault("addresses", ",".join(members.client_addresses()))
    options.setdefault("map", f"java-{uuid4()}")
    given = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return subprocess.Popen(
        [
            "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m",
            "-cp", f"{CLASSES}:{CLIENTS}/hazelcast-{version}.jar", f"holdfast.interop.{program}", what, *given,
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], said: str | None = None) -> tuple[list[Any], list[str]]:
    """Its output, a JSON value in each line, and its log."""
    try:
        out, err = process.communicate(said, timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        raise AssertionError(err[-5000:]) from None
    assert process.returncode == 0, err[-5000:]
    return [json.loads(line) for line in out.splitlines() if line != "now"], err.splitlines()


def quiet(log: list[str]) -> None:
    """No warning, and no more than a client says of itself in one session."""
    assert [line for line in log if line.startswith(("WARNING", "SEVERE"))] == []
    assert len(log) <= LOG_LINES_MAX, "\n".join(log)


ALL_CALLS = "calls,timed,whole,walked,listeners,destroyed,unsupported"


def check_calls(seen: dict[str, Any]) -> None:
    """What single calls, calls on many entries, iterators and listeners answered."""
    assert seen["calls"] == {
        "put": [None, 1],
        "get": [2, None],
        "contains": [True, False, True],
        "remove": [2, None],
        "object": "an object",
        "delete": None,
        "conditions": [None, None, 1, 1, False, True, False, True, True, True, False],
        "evict": [True, False],
        "async": [None, 1, 2, 2],
        "computed": [2, 4, 8, 10, None, None],
        "empty": [True, 0],
    }
    assert seen["whole"] == {
        "sizes": [301, 3, 301, 301, 301, 301],
        "all": {"1": "v1", "2": "v2"},
        "each": 301,
        "cleared": 0,
        "objects": True,
    }
    assert seen["walked"] == {"empty": False, "found": [2000, True, True], "left": 1990}
    assert seen["listeners"]["removed"] is True
    heard = seen["listeners"]["heard"]
    assert [line for line in heard if line[1] == "a"] == [
        ["ADDED", "a", 1, None],
        ["UPDATED", "a", 2, 1],
        ["REMOVED", "a", None, 2],
    ]
    assert [line for line in heard if line[1] == "b"] == [["ADDED", "b", 3, None], ["EXPIRED", "b", None, 3]]
    assert sorted(heard[5:8]) == [["ADDED", "c", 1, None], ["ADDED", "d", 2, None], ["CLEARED", 2]]
    assert heard[8:] == [["ADDED", "e", None, None]]


def check_times(seen: dict[str, Any]) -> None:
    """The answers about entries that end."""
    assert seen["timed"] == {
        "view": ["kept", 1, 60_000, 30_000],
        "no view": None,
        "setTtl": [True, 90_000],
        "ended": [None, None, None, 1],
    }


def check_all_calls(seen: dict[str, Any]) -> None:
    check_calls(seen)
    check_times(seen)
    assert seen["destroyed"]["heard"] == ["anew"], "no end of the first map, nothing of the second"
    assert seen["destroyed"]["count"] == 40
    assert seen["destroyed"]["objects"][:2] == ["DESTROYED true", "CREATED true"]
    *refusals, done = seen["unsupported"]
    names = ["Map.addIndex", "Executor", "Map.valuesWithPredicate", "Map.project"]
    for (kind, reason), name in zip(refusals, names, strict=True):
        assert kind == "UnsupportedOperationException", reason
        assert reason.startswith(name)
        assert "is not supported by Holdfast" in reason
    assert done is None


@pytest.mark.parametrize(
    "smart", ["true", pytest.param("false", marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_the_table_of_calls(cluster: LocalCluster, smart: str) -> None:
    (seen,), log = finish(start("Scenarios", "table", cluster, smart=smart))
    recorded.compare("java", NEWEST, "table", seen["table"])
    assert len(log) <= LOG_LINES_MAX, "\n".join(log)


@pytest.mark.slow
@pytest.mark.parametrize("version", [*OLDER, NEWEST])
def test_a_near_cache_is_fed(cluster: LocalCluster, version: str) -> None:
    (seen,), _ = finish(start("Scenarios", "near", cluster, version, near="true"))
    assert seen["near"] == {"again": 200, "hits": 200, "changed": 200, "cleared": None}
    if version == NEWEST:
        recorded.compare("java", NEWEST, "near cache", recorded.NEAR_CACHE)


@pytest.mark.parametrize(
    "smart", ["true", pytest.param("false", marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_each_call(cluster: LocalCluster, smart: str) -> None:
    (seen,), log = finish(start("Scenarios", ALL_CALLS, cluster, smart=smart))
    check_all_calls(seen)
    quiet(log)


@pytest.mark.slow
@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("smart", ["true", "false"], ids=["smart", "unisocket"])
def test_each_call_of_older_clients(cluster: LocalCluster, version: str, smart: str) -> None:
    (seen,), log = finish(start("Scenarios", ALL_CALLS, cluster, version, smart=smart))
    check_all_calls(seen)
    quiet(log)


def check_transactions(seen: dict[str, Any]) -> None:
    seen = seen["transactions"]
    inside = [
        True, None, 1, 3, False, None, None, 4, 1, False, True, 2, False,
        ["kept", "new", "short", "swapped"], 4, 4, 4,
    ]  # fmt: skip
    for kind in ("ONE_PHASE", "TWO_PHASE"):
        assert seen[kind] == [*inside, 1, None, None, True], "others see nothing before the commit"
    before, after = ({"gone": 2, "kept": 1, "swapped": 3}, {"kept": 7, "new": 4, "swapped": 9})
    assert seen["ONE_PHASE after"] == [before, None], "it was rolled back"
    assert seen["TWO_PHASE after"] == [after, "TWO_PHASE"]
    assert seen["ttl"] == 90_000
    assert seen["helper"] == 7
    assert seen["held"] == [False, 10]
    assert seen["freed"] == [True, 12]
    assert seen["late"] == "TransactionTimedOutException", "this client looks at its own clock first"
    assert seen["last"] == 12


@pytest.mark.parametrize("version", [NEWEST, *(pytest.param(one, marks=pytest.mark.slow) for one in OLDER)])
@pytest.mark.parametrize(
    "smart", ["true", pytest.param("false", marks=pytest.mark.slow)], ids=["smart", "unisocket"]
)
def test_transactions(cluster: LocalCluster, version: str, smart: str) -> None:
    (seen,), log = finish(start("Scenarios", "transactions", cluster, version, smart=smart))
    check_transactions(seen)
    quiet(log)


@pytest.mark.parametrize(
    ("version", "smart"),
    [
        pytest.param(NEWEST, "true", id="smart"),
        pytest.param(NEWEST, "false", id="unisocket", marks=pytest.mark.slow),
        *(pytest.param(version, "true", id=version, marks=pytest.mark.slow) for version in OLDER),
    ],
)
def test_the_loss_of_a_member(version: str, smart: str) -> None:
    """The client goes on, nothing acknowledged is lost, and its listener hears of all that is written later."""
    with LocalCluster(members=3) as cluster:
        cluster.wait_settled()
        writing = start("Scenarios", "loss", cluster, version, smart=smart)
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"
        cluster.kill(cluster.members[0])
        cluster.wait_safe()
        (seen,), log = finish(writing, "stop\n")
    assert seen["loss"]["acknowledged"] > 500
    assert seen["loss"]["wrong"] == []
    assert seen["loss"]["heard"] == 97 + 50
    assert len(log) <= 3 * LOG_LINES_MAX, "\n".join(log)


@pytest.mark.slow
@pytest.mark.parametrize("smart", ["true", "false"], ids=["smart", "unisocket"])
def test_members_are_killed_and_drained(smart: str) -> None:
    with LocalCluster(members=strikes.MEMBERS) as cluster:
        cluster.wait_settled()
        writing = start("Scenarios", "loss", cluster, smart=smart)
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"
        strikes.kill_and_drain(cluster, lambda: None)
        (seen,), _ = finish(writing, "stop\n")
    assert seen["loss"]["acknowledged"] > 500
    assert seen["loss"]["wrong"] == []
    assert seen["loss"]["heard"] == 97 + 50


SPARSE = '[partitions]\ncount = 31\nlost = "accept"\n[maps.default]\nbackups = 0\n'


@pytest.mark.slow
def test_listeners_of_members_and_partitions() -> None:
    """A member joins, and dies with partitions that nobody else has."""
    with LocalCluster(members=2, config=SPARSE) as cluster:
        cluster.wait_settled()
        watching = start("Scenarios", "watched", cluster)
        assert watching.stdout is not None
        assert watching.stdin is not None
        assert watching.stdout.readline() == "now\n"
        third = cluster.start_member()
        cluster.wait_settled()
        status = cluster.status()
        cluster.kill(third)
        (seen,), _ = finish(watching, "stop\n")
    seen = seen["watched"]
    assert seen["members"] == [["MEMBER", "CLIENT"]] * 2, "the doors that each member is listed with"
    assert seen["came and went"] == ["came", "went"]
    assert seen["processes"][:2] == ["started", "finished"]
    moved, failed = seen["moved"]
    assert moved >= 8, status
    assert failed <= 10, "what was just coming back when the member died"
    assert seen["lost"] == seen["lost of the map"]
    assert 8 <= len(seen["lost"]) <= 12


@pytest.mark.slow
def test_a_client_with_two_clusters() -> None:
    with (
        LocalCluster(members=1, config='[cluster]\nname = "first"\n') as first,
        LocalCluster(members=1, config='[cluster]\nname = "second"\n') as second,
    ):
        going = start(
            "Scenarios", "failover", first, cluster="first", connect_ms=1000,
            failover_addresses=second.client_addresses()[0], failover_cluster="second",
        )  # fmt: skip
        assert going.stdout is not None
        assert going.stdout.readline() == "now\n"
        first.kill(first.members[0])
        (seen,), log = finish(going, "stop\n")
    value, same, states = seen["failover"]
    assert (value, same) == ("second", False)
    assert "CLIENT_CHANGED_CLUSTER" in states
    assert len(log) <= 3 * LOG_LINES_MAX, "\n".join(log)


@pytest.mark.parametrize(
    ("options", "admitted"),
    [
        ({"username": "ada", "password": "a long enough secret", "cluster": "guarded"}, True),
        ({"username": "ada", "password": "wrong", "cluster": "guarded"}, False),
    ],
    ids=["password", "wrong password"],
)
def test_authentication(guarded: LocalCluster, options: dict[str, str], admitted: bool) -> None:
    (seen,), _ = finish(start("Scenarios", "calls", guarded, connect_ms=800, **options))
    assert ("calls" in seen) == admitted
    assert ("refused" in seen) != admitted


def test_the_driver_for_histories(cluster: LocalCluster) -> None:
    """`HotKeys` carries out what it is told, in order for each thread, and tells what became of it."""
    said = "a set k 1\na replaceIfSame k 2 3\na replaceIfSame k 1 3\na get k\na remove k\na putIfAbsent k 4\nstop\n"
    (ready, *told, done), _ = finish(start("HotKeys", "serve", cluster, client="c"), said)
    assert ready == {"ready": True}
    assert [(line["op"], line["arg"], line["result"]) for line in told] == [
        ("set", "1", None),
        ("replaceIfSame", ["2", "3"], False),
        ("replaceIfSame", ["1", "3"], True),
        ("get", None, "3"),
        ("remove", None, "3"),
        ("putIfAbsent", "4", None),
    ]
    assert {(line["client"], line["key"], line["outcome"]) for line in told} == {("c/a", "k", "ok")}
    times = [time for line in told for time in (line["start_ns"], line["end_ns"])]
    assert times == sorted(times)
    assert sum(done["counts"].values()) == 6
