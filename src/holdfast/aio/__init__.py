"""A client of the Hazelcast protocol, for Holdfast clusters and Hazelcast's own; it needs no server code.

async with Client(["127.0.0.1:5701"]) as client:
    await client.map("flights").put("UA1545", "EWR")
"""

from holdfast.aio.asyncio_client import Client
from holdfast.aio.asyncio_map import Map
from holdfast.aio.asyncio_transaction import Transaction, TransactionalMap
from holdfast.aio.blocking_client import BlockingClient, BlockingMap
from holdfast.aio.blocking_structures import BlockingMapLock, BlockingQueue, BlockingRingbuffer, BlockingTopic
from holdfast.aio.entry_listening import EntryListening
from holdfast.aio.event_listening import ListenerLags
from holdfast.aio.map_lock import MapLock
from holdfast.aio.queue import Queue
from holdfast.aio.ringbuffer import Ringbuffer
from holdfast.aio.topic import Topic, TopicListening, TopicMessage
from holdfast.client_core.near_cache import NearCache, NearCacheOptions, NearCacheStatistics
from holdfast.config.client_tls import ClientTls
from holdfast.serialization import ChangeKind, Codec, EntryChange, Identified, Serializers

__all__ = [
    "BlockingClient",
    "BlockingMap",
    "BlockingMapLock",
    "BlockingQueue",
    "BlockingRingbuffer",
    "BlockingTopic",
    "ChangeKind",
    "Client",
    "ClientTls",
    "Codec",
    "EntryChange",
    "EntryListening",
    "Identified",
    "ListenerLags",
    "Map",
    "MapLock",
    "NearCache",
    "NearCacheOptions",
    "NearCacheStatistics",
    "Queue",
    "Ringbuffer",
    "Serializers",
    "Topic",
    "TopicListening",
    "TopicMessage",
    "Transaction",
    "TransactionalMap",
]
