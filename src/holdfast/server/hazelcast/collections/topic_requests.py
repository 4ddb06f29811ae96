"""Requests for topics, whose messages are stored nowhere.

The primary of the topic's partition sends each message to all listeners, so these get all messages in the same order.
"""

from __future__ import annotations

from struct import Struct

from holdfast.core.model.collections import CollectionKind, StepKind, partition_of_name
from holdfast.core.model.operations import EntryEvent
from holdfast.server.hazelcast.collections.collection_requests import Row, check_collection, messages
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import nothing, truth
from holdfast.wire.hazelcast.hazelcast_frames import data, event, message, response, uuid
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

TOPIC = CollectionKind.TOPIC
_FIXED = Struct("<q17s")


def _add_listener(talk: Conversation, call: Call) -> None:
    check_collection(talk, TOPIC, call.name)
    partition = partition_of_name(call.name, talk.grid.partition_count)

    def on_event(published: EntryEvent) -> None:
        fixed = _FIXED.pack(talk.grid.wall_ms(), uuid(published.member))
        talk.send(message([event(call.kind + 2, call.correlation, fixed, partition), data(published.value)]))

    told = talk.callback("a message of a topic", on_event)
    registration = talk.register(
        lambda: talk.grid.listen(TOPIC.map_of(call.name), key=None, local_only=call.local_only, on_event=told)
    )
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))


def _remove_listener(talk: Conversation, call: Call) -> None:
    talk.send(truth(call, talk.unregister(call.registration)))


_ROWS = [
    Row(0x040100, "| name value", StepKind.PUBLISH, nothing),
    Row(0x040400, "| name items", StepKind.PUBLISH, nothing),
]
MESSAGES = messages(TOPIC, _ROWS)
LISTENERS = {
    0x040200: RequestKind(RequestLayout("local_only | name"), _add_listener),
    0x040300: RequestKind(RequestLayout("registration | name"), _remove_listener),
}
