"""A transport for Kombu, so that a cluster is the broker of Celery.

    import holdfast.adapters.kombu
    app = Celery(broker="holdfast://127.0.0.1:5701,127.0.0.1:5702/tasks")

A message is an entry of the map `PREFIX.messages`, and its id an item of the queue `PREFIX.NAME`. A consumer that takes
an id leases it (`PREFIX.leases`) until it acknowledges the message. So a message outlives the worker that took it: ids
without a lease and a place in the queue are offered again (`restore_lost`).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from queue import Empty
from typing import Any

from holdfast.adapters.process_clients import ProcessClient, process_client
from holdfast.aio.blocking_structures import BlockingListening, BlockingQueue
from holdfast.errors import HoldfastError, NotInstalled

try:
    from kombu.transport import TRANSPORT_ALIASES, base, virtual
except ImportError as absent:
    raise NotInstalled.of("this is a transport for Kombu", "celery", "celery") from absent

SCHEME = "holdfast://"
PREFIX = "kombu"
VISIBILITY_TIMEOUT_S = 3600.0
WAIT_S = 0.5
"""How long a consumer waits for an item before it looks at its other queues."""
BROADCASTS_MAX = 10_000
"""Kept for a consumer that does not take them; then the oldest go."""
_OF_KOMBU = frozenset(
    {"connect_retries_timeout", "errback", "interval_max", "interval_start", "interval_step", "max_retries"}
)
"""Options that Kombu and Celery read themselves."""


def _queue_of(identity: str) -> str:
    return identity.partition("\n")[0]


class QoS(virtual.QoS):
    def ack(self, delivery_tag: str) -> None:
        self.channel.forget(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if requeue:
            super().reject(delivery_tag, requeue=True)
        else:
            self.ack(delivery_tag)


class Channel(virtual.Channel):
    """`transport_options`: `visibility_timeout` (seconds until an unacknowledged message is delivered again, 3600), and
    the options of the client.
    """

    QoS = QoS
    supports_fanout = True
    do_restore = True

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.client, self.prefix = connection.grid, connection.prefix
        self.visibility_timeout_s = connection.visibility_timeout_s
        self.messages = self.client.map(f"{self.prefix}.messages")
        self.leases = self.client.map(f"{self.prefix}.leases")
        self._bindings = self.client.map(f"{self.prefix}.bindings")
        self._consumed = self.client.map(f"{self.prefix}.consumed")
        """Queues that expire unless they are consumed, until then."""
        self._expires_s: dict[str, float] = {}
        self._renewed_s: dict[str, float] = {}
        self._queues: dict[str, BlockingQueue[str]] = {}
        self._broadcasts: dict[str, deque[str]] = {}
        self._listening: dict[str, BlockingListening[Any]] = {}
        self._fanout_of: dict[str, str] = {}
        """Queues of broadcasts, which are not stored, with their exchange."""
        self._place = 0
        self._missing: set[str] = set()
        self._restored_s = time.monotonic()

    def _queue(self, name: str) -> BlockingQueue[str]:
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = self.client.connected().queue(f"{self.prefix}.{name}")
        return found

    # -- messages of a queue

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        """Raises Refused; Unknown: it may have been published."""
        identity = f"{queue}\n{message['properties']['delivery_tag']}"
        expires_ms = message["properties"].get("expiration")
        ttl_s = max(int(expires_ms), 1) / 1000 if expires_ms else None
        self.messages.set(identity, json.dumps(message), ttl_s=ttl_s)
        self._queue(queue).offer(identity)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        if queue in self._fanout_of:
            return self._next_broadcast(queue)
        while True:
            identity = self._queue(queue).poll(timeout or 0)
            if identity is None:
                raise Empty
            self.leases.set(identity, os.getpid(), ttl_s=self.visibility_timeout_s)
            stored = self.messages.get(identity)
            if stored is not None:
                message: dict[str, Any] = json.loads(stored)
                message["properties"]["delivery_tag"] = identity
                return message
            self.leases.delete(identity)  # It was acknowledged before it was offered again.

    def forget(self, identity: str) -> None:
        """The message was acknowledged, or rejected for good."""
        self.messages.delete(identity)
        self.leases.delete(identity)

    def _restore(self, message: Any) -> None:
        identity = message.delivery_tag
        whole = message.serializable()
        whole["redelivered"] = True
        if self.messages.replace(identity, json.dumps(whole)) is not None:
            self._queue(_queue_of(identity)).offer(identity)
            self.leases.delete(identity)

    def restore_lost(self) -> int:
        """Offer messages again whose consumer has died, or took longer than `visibility_timeout`; returns how many. An
        id must be missing twice: a consumer may be about to lease it. Ids that are in a queue are not missing.
        """
        self._restored_s = time.monotonic()
        # Leases come last: consumers go on, and an id that was in no queue any more may be leased by then.
        missing = set(self.messages.keys())
        for queue in {_queue_of(identity) for identity in missing}:
            missing.difference_update(self._queue(queue).items())
        missing.difference_update(self.leases.keys())
        lost = missing & self._missing
        for identity in lost:
            if self.messages.contains_key(identity):
                self._queue(_queue_of(identity)).offer(identity)
        self._missing = missing - lost
        return len(lost)

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any) -> Any:
        exchange = self._fanout_of.get(queue)
        if exchange is not None and queue not in self._listening:
            kept = self._broadcasts.setdefault(queue, deque(maxlen=BROADCASTS_MAX))
            topic = self.client.connected().topic(f"{self.prefix}.{exchange}")
            self._listening[queue] = topic.listen(lambda message: kept.append(message.value))
        return super().basic_consume(
            queue, no_ack, self._forgetting(callback) if no_ack else callback, consumer_tag, **kwargs
        )

    def basic_cancel(self, consumer_tag: str) -> Any:
        listening = self._listening.pop(self._tag_to_queue.get(consumer_tag, ""), None)
        if listening is not None:
            listening.close()
            self._broadcasts.pop(self._tag_to_queue[consumer_tag], None)
        return super().basic_cancel(consumer_tag)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.forget(message.delivery_tag)
        return message

    def _forgetting(self, callback: Any) -> Any:
        def received(message: Any) -> Any:
            self.forget(message.delivery_tag)
            return callback(message)

        return received

    def _poll(self, cycle: Any, callback: Any, timeout: float | None = None) -> Any:
        """Look at each queue; if all are empty, wait at the next one in turn."""
        if time.monotonic() - self._restored_s > self.visibility_timeout_s / 10:
            self.restore_lost()
        for queue in self._active_queues:
            self._renew(queue)
        try:
            return super()._poll(cycle, callback)
        except Empty:
            stored = [queue for queue in self._active_queues if queue not in self._fanout_of]
            if not stored:
                raise
            self._place = (self._place + 1) % len(stored)
            queue = stored[self._place]
            message = self._get(queue, min(WAIT_S, timeout or WAIT_S) / len(stored))
            return callback(message, queue)

    def _size(self, queue: str) -> int:
        return 0 if queue in self._fanout_of else self._queue(queue).size()

    def _purge(self, queue: str) -> int:
        if queue in self._fanout_of:
            return 0
        count = 0
        while ids := self._queue(queue).drain():
            self.messages.delete_all(ids)
            count += len(ids)
        return count

    def _delete(self, queue: str, exchange: str, *meta: Any, **_: Any) -> None:
        self._purge(queue)
        self._change(exchange, lambda table: [each for each in table if each[2] != queue])

    # -- exchanges

    def prepare_queue_arguments(self, arguments: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        prepared: dict[str, Any] = base.to_rabbitmq_queue_arguments(arguments, **kwargs)
        return prepared

    def _new_queue(self, queue: str, *, arguments: dict[str, Any] | None = None, **_: Any) -> None:
        expires_ms = (arguments or {}).get("x-expires")
        if expires_ms:
            self._expires_s[queue] = expires_ms / 1000
            self._renew(queue)

    def _renew(self, queue: str) -> None:
        """Keep a queue that expires: monitors of Celery leave theirs behind when they crash."""
        expires_s, now_s = self._expires_s.get(queue), time.monotonic()
        if expires_s is not None and now_s - self._renewed_s.get(queue, -math.inf) > expires_s / 3:
            self._renewed_s[queue] = now_s
            self._consumed.set(queue, os.getpid(), ttl_s=expires_s)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":
            self._fanout_of[queue] = exchange
            return
        binding = [routing_key or "", pattern or "", queue, queue in self._expires_s]
        self._change(exchange, lambda table: table if binding in table else [*table, binding])

    def _change(self, exchange: str, changed: Any) -> None:
        while True:
            before = self._bindings.get(exchange)
            table = json.loads(before) if before else []
            after = changed(table)
            if after == table:
                return
            if before is None:
                if self._bindings.put_if_absent(exchange, json.dumps(after)) is None:
                    return
            elif self._bindings.replace_if_same(exchange, before, json.dumps(after)):
                return

    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        """Bindings of an exchange; those of queues that have expired are removed."""
        stored = self._bindings.get(exchange)
        table: list[tuple[str, str, str]] = []
        for key, pattern, queue, expires in json.loads(stored) if stored else []:
            if expires and not self._consumed.contains_key(queue):
                self._delete(queue, exchange)
            else:
                table.append((key, pattern, queue))
        return table

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **_: Any) -> None:
        self.client.connected().topic(f"{self.prefix}.{exchange}").publish(json.dumps(message))

    def _next_broadcast(self, queue: str) -> dict[str, Any]:
        kept = self._broadcasts.get(queue)
        if not kept:
            raise Empty
        message: dict[str, Any] = json.loads(kept.popleft())
        return message


class Transport(virtual.Transport):
    """`holdfast://HOST:PORT,HOST:PORT/PREFIX`."""

    Channel = Channel
    can_parse_url = True
    default_port = 5701  # type: ignore[assignment]
    polling_interval = 0.02
    driver_type = driver_name = "holdfast"
    implements = virtual.Transport.implements.extend(exchange_type=frozenset({"direct", "topic", "fanout"}))
    connection_errors = (*virtual.Transport.connection_errors, HoldfastError)  # type: ignore[assignment]

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        given = client.transport_options or {}
        options = {name: value for name, value in given.items() if name not in _OF_KOMBU}
        addresses, _, prefix = (client.hostname or SCHEME).removeprefix(SCHEME).partition("/")
        self.prefix = prefix or PREFIX
        self.visibility_timeout_s = float(options.pop("visibility_timeout", VISIBILITY_TIMEOUT_S))
        self.grid: ProcessClient = process_client(addresses or "127.0.0.1:5701", options)

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """As it is: credentials are options and not in the address."""
        return uri

    def driver_version(self) -> str:
        return "1"


TRANSPORT_ALIASES["holdfast"] = "holdfast.adapters.kombu:Transport"
