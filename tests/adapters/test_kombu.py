"""Kombu's transport: Kombu's own tests of transports, messages that outlive their worker, and a worker of Celery."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("celery", reason="Celery is not installed: pip install '.[celery]' in the source folder")
import kombu
from celery import Celery

import holdfast.adapters.kombu as transport

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kombu"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:celery"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def url(addresses: str) -> str:
    return f"holdfast://{addresses}/{uuid4().hex}"


@pytest.fixture
def connection(url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(url) as made:
        yield made


def receive(connection: kombu.Connection, queue: kombu.Queue, *, no_ack: bool = False) -> Any:
    found: list[Any] = []
    with kombu.Consumer(
        connection, [queue], callbacks=[lambda _, message: found.append(message)], no_ack=no_ack
    ):
        connection.drain_events(timeout=5)
    return found[0]


def nothing_comes(connection: kombu.Connection, queue: kombu.Queue) -> bool:
    with (
        kombu.Consumer(connection, [queue], callbacks=[lambda *_: None]),
        pytest.raises(socket.timeout),
    ):
        connection.drain_events(timeout=0.2)
    return True


def test_messages_come_in_order_until_they_are_acknowledged(connection: kombu.Connection) -> None:
    jobs = kombu.Queue("jobs")
    with connection.Producer() as producer:
        for number in range(3):
            producer.publish({"number": number}, routing_key="jobs", declare=[jobs], headers={"h": "x"})
    channel = connection.default_channel
    assert jobs(channel).queue_declare(passive=True).message_count == 3
    for number in range(3):
        message = receive(connection, jobs)
        assert (message.payload, message.headers["h"]) == ({"number": number}, "x")
        message.ack()
    assert nothing_comes(connection, jobs)
    assert channel.messages.size() == channel.leases.size() == 0, "nothing is left of them"


def test_a_rejected_message_comes_again_only_if_it_is_requeued(connection: kombu.Connection) -> None:
    jobs = kombu.Queue("jobs")
    connection.Producer().publish("once", routing_key="jobs", declare=[jobs])
    receive(connection, jobs).requeue()
    message = receive(connection, jobs)
    assert message.payload == "once"
    message.reject()
    assert nothing_comes(connection, jobs)
    connection.Producer().publish("not acknowledged", routing_key="jobs")
    receive(connection, jobs, no_ack=True)
    connection.Producer().publish("got", routing_key="jobs")
    assert connection.default_channel.basic_get("jobs", no_ack=True).payload == "got"
    assert connection.default_channel.messages.size() == 0


def test_what_a_channel_has_not_acknowledged_is_back_when_it_closes(url: str) -> None:
    jobs = kombu.Queue("jobs")
    with kombu.Connection(url) as one:
        one.Producer().publish("job", routing_key="jobs", declare=[jobs])
        receive(one, jobs)
    with kombu.Connection(url) as other:
        assert receive(other, jobs).payload == "job"


CRASHING = """
import os, signal, sys, kombu, holdfast.adapters.kombu
with kombu.Connection(sys.argv[1]) as connection:
    def taken(body, message):
        os.kill(os.getpid(), signal.SIGKILL)
    with kombu.Consumer(connection, [kombu.Queue("jobs")], callbacks=[taken]):
        connection.drain_events(timeout=30)
"""


def test_a_message_outlives_the_worker_that_took_it(url: str) -> None:
    jobs = kombu.Queue("jobs")
    with kombu.Connection(url, transport_options={"visibility_timeout": 1}) as connection:
        connection.Producer().publish("job", routing_key="jobs", declare=[jobs])
        crashed = subprocess.run([sys.executable, "-c", CRASHING, url], check=False, timeout=60)
        assert crashed.returncode == -signal.SIGKILL
        channel = connection.default_channel
        assert channel.restore_lost() == channel.restore_lost() == 0, "the lease of an hour has not ended"
        channel.leases.clear()
        assert channel.restore_lost() == 0, "a consumer may be about to lease it"
        assert channel.restore_lost() == 1
        assert channel.restore_lost() == 0
        message = receive(connection, jobs)
        assert message.payload == "job"
        message.ack()


def test_a_message_that_a_consumer_is_about_to_lease_comes_once(connection: kombu.Connection) -> None:
    """It has waited in its queue for a long time before."""
    jobs = kombu.Queue("jobs")
    connection.Producer().publish("job", routing_key="jobs", declare=[jobs])
    channel = connection.default_channel
    assert channel.restore_lost() == 0
    assert channel._queue("jobs").poll(0) is not None
    assert channel.restore_lost() == 0
    assert channel.restore_lost() == 1


def test_a_lease_ends(url: str) -> None:
    """Consumers look for lost messages by themselves."""
    jobs = kombu.Queue("jobs")
    with kombu.Connection(url, transport_options={"visibility_timeout": 0.1}) as connection:
        connection.Producer().publish("job", routing_key="jobs", declare=[jobs])
        first = receive(connection, jobs)
        assert receive(connection, jobs).payload == "job"
        first.ack()


def test_a_message_expires(connection: kombu.Connection) -> None:
    jobs = kombu.Queue("jobs")
    connection.Producer().publish("late", routing_key="jobs", declare=[jobs], expiration=0.001)
    while connection.default_channel.messages.size():
        pass
    assert nothing_comes(connection, jobs)
    assert jobs(connection.default_channel).queue_declare(passive=True).message_count == 0


def test_exchanges_of_other_connections_are_known(url: str, connection: kombu.Connection) -> None:
    direct, topic = kombu.Exchange("d", "direct"), kombu.Exchange("t", "topic")
    one, other = kombu.Queue("one", direct, "1"), kombu.Queue("other", topic, "news.*")
    for queue in (one, other):
        queue(connection.default_channel).declare()
    with kombu.Connection(url) as second:
        for exchange, key in ((direct, "1"), (direct, "2"), (topic, "news.eu"), (topic, "old.eu")):
            second.Producer().publish(key, exchange=exchange, routing_key=key, declare=[exchange])
    for queue, key in ((one, "1"), (other, "news.eu")):
        message = receive(connection, queue)
        assert message.payload == key
        message.ack()
        assert nothing_comes(connection, queue)
    one(connection.default_channel).delete()
    assert connection.default_channel.get_table("d") == []


def test_a_queue_that_expires_is_kept_while_it_is_consumed(url: str, connection: kombu.Connection) -> None:
    events = kombu.Exchange("events", "topic")
    seen = kombu.Queue("seen", events, "#", expires=0.5)
    with kombu.Connection(url) as monitor:
        seen(monitor.default_channel).declare()
        connection.Producer().publish(1, exchange=events, routing_key="e", declare=[events])
        with kombu.Consumer(monitor, [seen], callbacks=[lambda *_: None], no_ack=True):
            monitor.drain_events(timeout=5)
            until_s = time.monotonic() + 1.5
            while time.monotonic() < until_s:
                with pytest.raises(socket.timeout):
                    monitor.drain_events(timeout=0.1)
            assert connection.default_channel.get_table("events")
    connection.Producer().publish(2, exchange=events, routing_key="e")
    until_s = time.monotonic() + 60
    while connection.default_channel.get_table("events"):
        assert time.monotonic() < until_s
    assert connection.default_channel.messages.size() == 0


def test_all_consumers_get_a_broadcast(url: str) -> None:
    news = kombu.Exchange("news", "fanout")
    with kombu.Connection(url) as one, kombu.Connection(url) as other, kombu.Connection(url) as sender:
        found: list[str] = []
        consumers = [
            kombu.Consumer(
                each, [kombu.Queue(name, news)], callbacks=[lambda body, _: found.append(body)], no_ack=True
            )
            for each, name in ((one, "a"), (other, "b"))
        ]
        with consumers[0], consumers[1]:
            sender.Producer().publish("now", exchange=news, declare=[news])
            one.drain_events(timeout=5)
            other.drain_events(timeout=5)
            for _ in range(3):
                sender.Producer().publish("later", exchange=news)
        assert found == ["now", "now"]
        assert not one.default_channel._broadcasts, "broadcasts are for those who listen now"


def test_a_cluster_that_is_not_there_is_reported() -> None:
    options = {"connect_timeout_s": 0.1}
    connection = kombu.Connection("holdfast://127.0.0.1:1/none", transport_options=options)
    with pytest.raises(connection.connection_errors):
        connection.connect()
    with pytest.raises(transport.HoldfastError, match="is not an option"):
        kombu.Connection("holdfast://127.0.0.1:1/none", transport_options={"speed": 1}).connect()


WORKER = """
import sys
from celery import Celery
import holdfast.adapters.kombu
app = Celery("tested", broker=sys.argv[1], backend="holdfast.adapters.celery:HoldfastBackend+" + sys.argv[2])
@app.task(name="add")
def add(one, other):
    return one + other
app.worker_main(["worker", "--concurrency=1", "--loglevel=WARNING", "--without-gossip", "--without-mingle"])
"""


def test_a_worker_of_celery_runs_tasks_and_answers_pings(url: str, tmp_path: Path) -> None:
    results = f"{url}-results"
    log = (tmp_path / "log").open("w")
    environment = {**os.environ, "PYTHONPATH": ""}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, url, results], stdout=log, stderr=log, cwd=tmp_path, env=environment
    )
    try:
        app = Celery("tested", broker=url, backend=f"holdfast.adapters.celery:HoldfastBackend+{results}")
        sent = [app.send_task("add", (number, 1)) for number in range(5)]
        assert [each.get(timeout=60, interval=0.05) for each in sent] == [1, 2, 3, 4, 5]
        until_s = time.monotonic() + 60
        while not (found := app.control.ping(timeout=0.5)):
            assert time.monotonic() < until_s, (tmp_path / "log").read_text()
        assert list(found[0].values()) == [{"ok": "pong"}]
        app.close()
    except Exception:
        print((tmp_path / "log").read_text())
        raise
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
        log.close()
