"""The door for HTTP of real members over real sockets: health, metrics, credentials, TLS, and enemies."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_metrics
from tests.runtime.certificates import HOST, Authority
from tests.runtime.in_process.test_embedded import cluster, member, run

from holdfast.client.blocking import Client
from holdfast.config import load
from holdfast.core.model.map_counts import OTHERS
from holdfast.errors import ConfigError
from holdfast.observe.member_metrics import ProcessStats, collecting
from holdfast.observe.metric_catalogue import LABELLED_MAPS, METRICS
from holdfast.observe.status import counting
from holdfast.runtime.http.metrics_page import families, written
from holdfast.runtime.in_process.embedded import Member
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

OPEN = {"http__enabled": True, "http__port": 0}


def door_of(one: Member) -> str:
    """HOST:PORT of a member's door for HTTP."""
    return str(one.status().http)


@contextmanager
def connected(address: str, context: ssl.SSLContext | None = None) -> Iterator[http.client.HTTPConnection]:
    made = (
        http.client.HTTPConnection(address, timeout=120)
        if context is None
        else http.client.HTTPSConnection(address, timeout=120, context=context)
    )
    try:
        yield made
    finally:
        made.close()


def ask(
    address: str,
    path: str,
    method: str = "GET",
    body: str | None = None,
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> tuple[int, str]:
    """One request: the status and the body of the answer."""
    with connected(address, context) as made:
        made.request(
            method, path, body, headers={name.replace("_", "-"): said for name, said in headers.items()}
        )
        answer = made.getresponse()
        return answer.status, answer.read().decode()


async def asked(*args: Any, **keywords: Any) -> tuple[int, str]:
    """The same while the member's loop goes on."""
    return await asyncio.to_thread(ask, *args, **keywords)


async def until(reached: Callable[[], bool]) -> None:
    """Wait for this."""
    for _ in range(1000):
        if reached():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within ten seconds")


def values(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By name of the sample: values by the values of the labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in read_metrics(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


# -- health


def test_a_member_in_a_program_has_a_door_only_if_it_is_wanted() -> None:
    async def story() -> None:
        async with member() as one:
            assert door_of(one) == ""

    run(story())


def test_health_from_the_start_to_the_end() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN) as (first,):
            assert await asked(door_of(first), "/health/live") == (200, "alive\n")
            assert await asked(door_of(first), "/health/ready") == (200, "ready\n")
            # A member whose seed is nobody looks for its cluster.
            lonely = member("127.0.0.1:9", **OPEN, cluster__join_timeout_ms=60_000)
            starting = asyncio.create_task(lonely.start())
            await until(lambda: lonely._inner.started)
            assert await asked(door_of(lonely), "/health/live") == (200, "alive\n")
            assert await asked(door_of(lonely), "/health/ready") == (
                503,
                "not ready: it is looking for the cluster\n",
            )
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    run(story())


@pytest.mark.rule("observe/H-1")
def test_who_waits_for_others_or_leaves_is_not_ready() -> None:
    async def story() -> None:
        async with member(**OPEN, cluster__initial_members=2) as first:
            status, why = await asked(door_of(first), "/health/ready")
            assert (status, why) == (
                503,
                "not ready: partitions are not assigned yet, for 1 more data members\n",
            )
            async with member(first.member_address, **OPEN, cluster__initial_members=2) as second:
                await first.wait_safe()
                assert (await asked(door_of(first), "/health/ready"))[0] == 200
                await first.change_cluster_state("frozen")
                second._node.leave()
                status, why = await asked(door_of(second), "/health/ready")
                assert status == 503
                assert "it is leaving" in why
                await first.change_cluster_state("active")

    run(story())


@pytest.mark.rule("observe/H-2")
def test_who_is_unsafe_is_ready() -> None:
    async def story() -> None:
        async with cluster(2, **OPEN) as (first, second):
            await first.change_cluster_state("frozen")
            await second.crash()
            await until(lambda: not first.safe)
            assert (await asked(door_of(first), "/health/ready"))[0] == 200
            await first.change_cluster_state("active")

    run(story())


# -- status and orders


def test_status_is_what_the_command_tells() -> None:
    async def story() -> None:
        async with cluster(2, **OPEN) as (first, _):
            status, body = await asked(door_of(first), "/v1/queries/status")
            told = json.loads(body)
            assert status == 200
            assert told["uuid"] == first.uuid
            assert told.keys() == set(first.status().__struct_fields__)

    run(story())


def test_the_status_of_all_members_through_one_of_them() -> None:
    users = {
        "users__ada__passwords": ["secret"],
        "users__ada__roles": ["looks"],
        "roles__looks__rules": ["cluster * status"],
    }

    async def story() -> None:
        for more, headers in (
            ({}, {}),
            (users, {"authorization": "Basic " + b64encode(b"ada:secret").decode()}),
            ({"http__token": "t"}, {"authorization": "Bearer t"}),
        ):
            async with cluster(2, **OPEN, **more) as (first, second):
                status, body = await asked(door_of(first), "/v1/queries/safe?member=all", **headers)
                told = json.loads(body)["members"]
                assert status == 200
                assert {each["uuid"] for each in told} == {first.uuid, second.uuid}
                assert [(each["answer"], each["error"]) for each in told] == 2 * [
                    ({"safe": True, "reason": ""}, "")
                ]

    run(story())


def test_an_order_over_http_is_carried_out() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN) as (one,):
            order = json.dumps({"state": "frozen"})
            sent = await asked(
                door_of(one), "/v1/actions/state", "POST", order, content_type="application/json"
            )
            assert sent == (200, '{"result":"done","message":"the cluster is frozen"}')
            assert str(one.cluster_state) == "frozen"
            again = await asked(
                door_of(one), "/v1/actions/promote", "POST", "{}", content_type="application/json"
            )
            assert again[0] == 200
            strange = await asked(
                door_of(one),
                "/v1/actions/state",
                "POST",
                order,
                content_type="application/json",
                origin="http://evil.example",
            )
            assert strange[0] == 403
            await one.change_cluster_state("active")

    run(story())


# -- metrics


def test_metrics_as_prometheus_reads_them() -> None:
    async def story() -> None:
        async with cluster(2, **OPEN) as (first, second):
            names = first.map("flights")
            for number in range(100):
                await names.set(number, "x" * 50)
            assert await names.put_if_absent(1, "y") == "x" * 50
            pages = [values((await asked(door_of(one), "/metrics"))[1]) for one in (first, second)]
            for page in pages:
                assert page["holdfast_members"] == {(): 2}
                assert page["holdfast_ready"] == {(): 1}
                assert page["process_resident_memory_bytes"][()] > 10_000_000
                (build,) = page["holdfast_build_info"]
                assert page["holdfast_build_info"][build] == 1
            entries = [page["holdfast_map_entries"].get(("flights",), 0) for page in pages]
            assert sum(entries) == 100
            bytes_told = sum(page["holdfast_map_bytes"].get(("flights",), 0) for page in pages)
            assert 60 * 100 < bytes_told < 80 * 100
            assert sum(page["holdfast_entries"][("primary",)] for page in pages) == 100
            assert sum(page["holdfast_entries"][("all",)] for page in pages) == 200
            operations = pages[0]["holdfast_operation_duration_seconds_count"]
            assert operations[("set",)] == 100
            assert operations[("put-if-absent",)] == 1
            assert pages[0]["holdfast_operation_duration_seconds_sum"][("set",)] < 100
            assert sum(page["holdfast_master"][()] for page in pages) == 1
            assert sum(page["holdfast_partitions_serving"][()] for page in pages) == 31

    run(story())


def test_columns_that_are_loaded_and_scanned_are_operations() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN) as (one,):
            keys = [to_stored(number) for number in range(200)]

            def load_and_scan() -> int:
                with Client(one.client_address) as client:
                    client.put_columns("m", keys, keys)
                    partitions = range(client.partition_count)
                    return sum(len(client.scan("m", partition, rows_max=2)) for partition in partitions)

            pages_read = await asyncio.to_thread(load_and_scan)
            assert pages_read > 100
            page = values((await asked(door_of(one), "/metrics"))[1])
            operations = page["holdfast_operation_duration_seconds_count"]
            assert operations[("scan",)] == pages_read
            assert operations[("put-columns",)] >= 1
            assert page["holdfast_operation_duration_seconds_sum"][("put-columns",)] > 0

    run(story())


def test_every_metric_is_of_the_catalogue_and_named_as_it_should_be() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN) as (one,):
            await one.map("m").set(1, 1)
            _, text = await asked(door_of(one), "/metrics")
            for family in read_metrics(text):
                if family.name.startswith(("process_", "python_")):
                    continue
                name = family.name + ("_total" if family.type == "counter" else "")
                metric = METRICS[name]
                assert (metric.kind, metric.meaning) == (family.type, family.documentation)
                for sample in family.samples:
                    assert set(sample.labels) - {"le"} == set(metric.labels)
            if shutil.which("promtool") is not None:
                assert await asyncio.to_thread(complaints_about, text) == b""
            _, text = await asked(
                door_of(one), "/metrics", accept="application/openmetrics-text; version=1.0.0"
            )
            assert text.endswith("# EOF\n")
            assert {family.name for family in read_openmetrics(text)} >= {
                "holdfast_members",
                "process_cpu_seconds",
            }

    run(story())
    for name, metric in METRICS.items():
        assert name.endswith("_total") is (metric.kind == "counter"), name
        assert not name.endswith(("_ms", "_ns", "_us", "_count", "_sum", "_bucket")), name


def complaints_about(text: str) -> bytes:
    """What Prometheus's own judge of metrics says."""
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False, timeout=60
    )
    return checked.stdout + checked.stderr


@pytest.mark.rule("observe/M-2")
def test_maps_without_number_have_few_series() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN, partitions__count=7, maps__zz__backups=0) as (one,):
            for number in range(LABELLED_MAPS + 20):
                await one.map(f"m{number:03}").set(1, "x")
            await one.map("zz").set(1, "x")
            page = values((await asked(door_of(one), "/metrics"))[1])
            told = page["holdfast_map_entries"]
            assert len(told) == LABELLED_MAPS + 1
            assert told[("zz",)] == 1, "what is configured comes first"
            assert told[(OTHERS,)] == page["holdfast_maps_without_label"][()] == 21
            assert sum(told.values()) == LABELLED_MAPS + 21

    run(story())


@pytest.mark.rule("observe/M-1")
def test_a_thousand_maps_do_not_stall_the_member() -> None:
    """And many scrapers cost no more than one."""

    async def story() -> None:
        async with cluster(1, **OPEN, partitions__count=61) as (one,):
            copies = list(one._node.member.copies.held.values())
            for number in range(1000):
                for copy in copies[number % 5 :: 5]:
                    copy.open(f"m{number}").state.entries[b"k" * 20] = b"v" * 50
            inside = one._node.member
            collected, longest = longest_slice(collecting(inside, ProcessStats()))
            assert len(collected["holdfast_map_entries"]) == LABELLED_MAPS + 1
            _, longest_written = longest_slice(written(list(families(collected)), ""))
            counted, longest_counted = longest_slice(counting(inside))
            assert counted.entries.all == 1000 * 61 // 5
            print("lines in the longest slice:", longest, longest_written, longest_counted)
            # In a turn of the loop there are as many slices as fit into some ms.
            assert max(longest, longest_written, longest_counted) < SLICE_LINES
            pages = await asyncio.gather(*(asked(door_of(one), "/metrics") for _ in range(8)))
            assert len(set(pages)) == 1, "many scrapers cost no more than one"

    run(story())


T = TypeVar("T")
SLICE_LINES = 20_000


def longest_slice(work: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and how many lines of Python the longest slice ran. Unlike seconds they do not depend on the machine,
    on its load, or on a garbage collection.
    """
    lines, longest = 0, 0

    def follow(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        while True:
            lines = 0
            try:
                next(work)
            except StopIteration as over:
                return over.value, max(longest, lines)
            longest = max(longest, lines)
    finally:
        sys.settrace(before)


# -- who may come


def test_credentials_of_users() -> None:
    users = {
        "users__root__passwords": ["secret"],
        "users__root__roles": ["admin"],
        "users__prometheus__tokens": ["scrape-scrape-scrape-scrape"],
        "users__prometheus__roles": ["scraper"],
        "roles__scraper__rules": ["cluster * metrics"],
    }

    async def story() -> None:
        async with cluster(1, **OPEN, **users) as (one,):
            door = door_of(one)
            basic = "Basic " + b64encode(b"root:secret").decode()
            assert (await asked(door, "/metrics"))[0] == 401
            assert (await asked(door, "/health/ready"))[0] == 200
            assert (await asked(door, "/metrics", authorization="Bearer scrape-scrape-scrape-scrape"))[
                0
            ] == 200
            assert (
                await asked(door, "/v1/queries/status", authorization="Bearer scrape-scrape-scrape-scrape")
            )[0] == 403
            assert (await asked(door, "/v1/queries/status", authorization=basic))[0] == 200
            wrong = "Basic " + b64encode(b"root:wrong").decode()
            told = {(await asked(door, "/v1/queries/status", authorization=wrong))[0] for _ in range(12)}
            assert 401 in told
            assert told <= {401, 429}
            # A name of somebody else in the Host header harms nobody who has shown who he is.
            assert (await asked(door, "/v1/queries/status", authorization=basic, host="grid.example"))[0] in (
                200,
                429,
            )

    run(story())


def test_a_token_of_the_door() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN, http__token="open sesame") as (one,):
            door = door_of(one)
            assert (await asked(door, "/v1/queries/status"))[0] == 401
            assert (await asked(door, "/v1/queries/status", authorization="Bearer open"))[0] == 401
            assert (await asked(door, "/v1/queries/status", authorization="Bearer open sesame"))[0] == 200
            browser = "Basic " + b64encode(b"token:open sesame").decode()
            assert (await asked(door, "/v1/queries/status", authorization=browser))[0] == 200

    run(story())


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"http.host": "0.0.0.0"}, "http.host = '0.0.0.0' is not allowed without TLS and credentials"),
        ({"http.host": "0.0.0.0", "http.token": "t"}, "tls.certificate"),
        ({"http.token": "t", "security.token": "s"}, "http.token is not allowed, because credentials"),
        (
            {"http.token": "t", "users.u.passwords": ["p"], "users.u.roles": ["admin"]},
            "http.token is not allowed, because users",
        ),
    ],
)
def test_settings_that_would_let_others_in(overrides: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("(", "\\(")):
        load(None, {}, overrides)


def test_tls(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    shown = ours.sign()
    tls = {"tls__certificate": shown.certificate, "tls__key": shown.key, "tls__ca": ours.file}

    async def story() -> None:
        async with cluster(1, **OPEN, **tls) as (one,):
            context = ssl.create_default_context(cafile=ours.file)
            door = door_of(one)
            assert (await asked(door, "/health/ready", context=context)) == (200, "ready\n")
            status, text = await asked(door, "/metrics", context=context)
            assert status == 200
            assert "holdfast_members 1.0" in text
            assert (await asked(door, "/health/ready"))[0] == 400, "without TLS"

    run(story())
    assert HOST in ("127.0.0.1", "localhost")


# -- enemies


def said(address: str, *pieces: bytes) -> bytes:
    """What comes back on one connection until it ends."""
    host, _, port = address.rpartition(":")
    found = b""
    with socket.create_connection((host, int(port)), 10) as made:
        try:
            for piece in pieces:
                made.sendall(piece)
            while more := made.recv(65_536):
                found += more
        except ConnectionError:
            pass
    return found


def test_who_orders_a_member_to_leave_is_answered() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN) as (one,):
            order = "{}"
            asking = asyncio.create_task(
                asked(
                    door_of(one),
                    "/v1/actions/drain?timeout_ms=5000",
                    "POST",
                    order,
                    content_type="application/json",
                )
            )
            await one.wait_ended()
            await one._inner.stop()
            status, body = await asking
            assert (status, json.loads(body)["result"]) == (200, "done")

    run(story())


def test_strangers_end_their_own_connection_alone() -> None:
    async def story() -> None:
        async with cluster(1, **OPEN, http__connections=4) as (one,):
            door = door_of(one)
            assert (await asyncio.to_thread(said, door, b"CP2" + b"\0" * 50)).startswith(b"HTTP/1.1 400")
            assert (await asyncio.to_thread(said, door, b"\x16\x03\x01" + b"\0" * 50)).startswith(b"\x15\x03")
            assert (await asyncio.to_thread(said, door, b"\xff" * 100_000)).startswith(b"HTTP/1.1 4")
            assert (
                await asyncio.to_thread(said, door, b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000)
            ).startswith(b"HTTP/1.1 431")
            host, _, port = door.rpartition(":")
            held = [await asyncio.to_thread(socket.create_connection, (host, int(port))) for _ in range(10)]
            assert (await asked(door, "/health/ready"))[0] == 200
            for each in held:
                each.close()
            told = one.status().rejections
            assert told["HTTP connections closed: too many"] >= 6
            assert told["connections to the wrong port"] == 2
            assert one.safe
            assert one.status().state == "member"

    run(story())


def test_the_door_of_a_process() -> None:
    """Without any setting: on loopback, at a port near 5801, told in log and status, and closed with the member."""
    with LocalCluster(2) as grid:
        doors = []
        for one in grid.alive:
            with connected(one.client_address) as made:
                made.request("GET", "/")
                assert made.getresponse().status == 400, "that is another door"
            log = one.log.read_text()
            (line,) = [line for line in log.splitlines() if "HTTP at http://" in line]
            doors.append(line.rpartition("http://")[2])
        assert len(set(doors)) == 2
        for door in doors:
            assert ask(door, "/health/ready") == (200, "ready\n")
            assert values(ask(door, "/metrics")[1])["holdfast_members"] == {(): 2}
        grid.drain(grid.alive[1])
        with pytest.raises(ConnectionRefusedError):
            ask(doors[1], "/health/live")
