"""Authentication, the first request of a connection, and the description of the cluster in its response."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

from holdfast.server.grid import ClusterCard, MemberCard
from holdfast.server.hazelcast.cluster_views import address, members_of, owner_lists, owners_of
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.logins import Login, LoginAnswer
from holdfast.server.rights import EVERYTHING, Rights
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, NULL, message, response, text, uuid
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import AGAIN

AUTHENTICATE = 0x000100
AUTHENTICATE_CUSTOM = 0x000200

ADMITTED = 0
CREDENTIALS_WRONG = 1
SERIALIZATION_VERSION_WRONG = 2

SERIALIZATION_VERSION = 1
SPOKEN_VERSION = "5.6.0"
"""The server version that clients see. They parse it as a version of Hazelcast and adapt their protocol to it."""

_SHOWN = "client_type client_version client_name"
_FIXED = Struct("<B17sBi17s?ii")
_REASONS = {
    CREDENTIALS_WRONG: "cluster name or credentials are wrong",
    SERIALIZATION_VERSION_WRONG: "the serialization version is another one",
}


def _authenticate(talk: Conversation, call: Call) -> None:
    if call.serialization_version != SERIALIZATION_VERSION:
        _conclude(talk, call, SERIALIZATION_VERSION_WRONG)
    elif call.cluster_name != talk.grid.cluster_name:
        _conclude(talk, call, CREDENTIALS_WRONG)
    else:
        token = call.credentials if call.kind == AUTHENTICATE_CUSTOM else None
        login = Login(call.username, call.password, token, talk.peer)
        talk.log_in(login, lambda answer: _proven(talk, call, answer))


def _proven(talk: Conversation, call: Call, answer: LoginAnswer) -> None:
    if answer.again:
        talk.reject(call.correlation, AGAIN, answer.again)
        talk.close(answer.again)
    elif answer.rights is None:
        _conclude(talk, call, CREDENTIALS_WRONG)
    elif talk.client and answer.rights is not talk.rights:
        talk.close("a client logged in as another user on the same connection")
    else:
        _conclude(talk, call, ADMITTED, answer.rights)


def _conclude(talk: Conversation, call: Call, status: int, rights: Rights = EVERYTHING) -> None:
    card = talk.grid.cluster()
    me = next((member for member in card.members if member.uuid == talk.grid.member_uuid), None)
    full = talk.admit() if status == ADMITTED and me is not None else ""
    if full:
        talk.reject(call.correlation, AGAIN, full)
        talk.close(full)
    elif status == ADMITTED and me is not None:
        talk.authenticated = True
        talk.rights = rights
        talk.client_type, talk.client_name = call.client_type, call.client_name
        talk.client = call.client if rights.everything else _bound(call.client, rights.user)
        talk.report_connected()
        talk.send(_welcome(talk, call, card, me))
    elif status == ADMITTED:
        # Other members announce a new member to their clients, possibly before it knows the view that admits it. A
        # rejected client would back off, so it waits instead; limits.auth_timeout_ms bounds the wait.
        talk.wait_for_join(lambda: _conclude(talk, call, status, rights))
    else:
        talk.send(_refusal(call, status))
        talk.close(f"client not admitted: {_REASONS[status]}")


def _bound(client: bytes, user: str) -> bytes:
    """The client's UUID made unique to its user, equally on every member, so that no other user can claim it."""
    return client[:1] + blake2b(client + user.encode(), digest_size=16).digest()


def _welcome(talk: Conversation, call: Call, card: ClusterCard, me: MemberCard) -> bytes:
    grid = talk.grid
    fixed = _FIXED.pack(
        ADMITTED,
        uuid(grid.member_uuid),
        SERIALIZATION_VERSION,
        grid.partition_count,
        uuid(grid.cluster_id),
        True,  # a client may have several clusters to go to
        card.members_version,
        card.owners_version,
    )
    return message(
        [
            response(call.kind + 1, call.correlation, fixed),
            *address(me.host, me.client_port),
            text(SPOKEN_VERSION),
            NULL,  # ports of thread-per-core servers
            NULL,  # and their token
            *members_of(card),
            *owners_of(card),
            BEGIN,  # further properties
            END,
        ]
    )


def _refusal(call: Call, status: int) -> bytes:
    """The response to wrong credentials, which reveals nothing about the cluster."""
    fixed = _FIXED.pack(status, uuid(None), SERIALIZATION_VERSION, 0, uuid(None), False, -1, -1)
    nothing = (BEGIN, END)
    return message(
        [
            response(call.kind + 1, call.correlation, fixed),
            NULL,
            text(SPOKEN_VERSION),
            NULL,
            NULL,
            *nothing,
            *owner_lists({}),
            *nothing,
        ]
    )


MESSAGES = {
    AUTHENTICATE: RequestKind(
        RequestLayout(f"client serialization_version | cluster_name username password {_SHOWN}"),
        _authenticate,
    ),
    AUTHENTICATE_CUSTOM: RequestKind(
        RequestLayout(f"client serialization_version | cluster_name credentials {_SHOWN}"),
        _authenticate,
    ),
}
