"""Hostile messages for all ports, generated from the layouts of the messages themselves.

A *talk* is the exchange on one connection. It is determined by a seed, its number, and the members, so a harmful one
can be repeated. In most talks every message is valid, so that it gets far, with numbers at the edges of their ranges,
reserved names, and keys of other partitions. Others are rough: a wrong type, invalid UTF-8, nested arrays, a count
without its elements, a frame that is cut or longer than it says; these end their connection soon.

Not sent: orders of operators (end the cluster, leave), and messages that only a member can know and others must
believe, like the next view of the right cluster: members do not defend against holders of the secret who lie in valid
messages.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import inspect

from holdfast.actions.registry import ACTIONS, read_action
from holdfast.config import TRANSACTIONS_MAP
from holdfast.core.messages import Message
from holdfast.core.model.collections import (
    LOCK_STEPS,
    STEPS_OF,
    CollectionStep,
    encode_step,
    partition_of_name,
)
from holdfast.core.model.cp import OBJECTS, CpStep, CpStepKind, cp_request
from holdfast.core.model.keys import partition_of
from holdfast.core.model.map_locks import OWNER_BYTES, locks_of
from holdfast.core.model.map_moves import FillMap, MoveStep, encode_move
from holdfast.core.model.operations import (
    COLLECTION_CHANGES,
    COLLECTION_STEPS,
    CP_STEPS,
    MOVING,
    WHOLE,
    Op,
    Request,
)
from holdfast.core.model.transactions import LockKeys, PrepareBranch, TransactionStep
from holdfast.engine.link import HEADER
from holdfast.errors import ProtocolError
from holdfast.runtime.peering.member_frames import DATAGRAM, FRAME, PACKET
from holdfast.runtime.peering.member_handshake import CONNECTS, NONCE_BYTES, OF_THIS_BUILD, proof_of
from holdfast.server.access import SERVICES
from holdfast.server.hazelcast import authentication
from holdfast.server.hazelcast.hazelcast_session import MESSAGES
from holdfast.wire import own
from holdfast.wire.hazelcast import hazelcast_frames as hz
from holdfast.wire.hazelcast.compact_schemas import schema_entry
from holdfast.wire.hazelcast.layouts import FIXED, ITEMS_MAX, Schema
from holdfast_lab.fuzz.crowds import CLIENT_CROWDS, HTTP_CROWDS, OWN_CROWDS
from holdfast_lab.fuzz.hostile_http import http_pieces

CLIENTS, OWN, MEMBERS, HTTP = "Hazelcast", "own", "member", "HTTP"
HTTP_SHARE = 0.15
"""Share of talks at the HTTP port; the others do not depend on it."""
CROWD_SHARE = 0.003
"""Share of talks with one message of very many parts (`holdfast_lab.fuzz.crowds`)."""
CROWD_BYTES = (30_000, 300_000, 1_500_000)
DOORS = (CLIENTS, CLIENTS, CLIENTS, OWN, OWN, MEMBERS)
ROUGH = 0.4
MESSAGES_MAX = 40
NUMBERS = (
    *(0, 1, 2, 3, -1, -2, 6, 7, 31, 127, 128, 255, 256, 1000, 65_535, 65_536, 70_000),
    *(
        2**31 - 1,
        2**31,
        -(2**31),
        -(2**31) - 1,
        2**32,
        2**53,
        2**53 + 1,
        2**63 - 1,
        -(2**63),
        2**63,
        2**64 - 1,
    ),
)
NAMES = (
    *(
        "m",
        "n",
        "flights",
        "fuzz.journal",
        "",
        " ",
        "x" * 256,
        "x" * 257,
        "x" * 5000,
        "a\nb: CRITICAL",
        "\0",
        "ü漢💥",
    ),
    *(
        "__objects",
        "__schemas",
        "__schemas.spark",
        "__streams.spark",
        "__service:s",
        "__x",
        "default",
        "../../etc",
        "%s",
    ),
)
HOSTS = (
    "127.0.0.1",
    "",
    "localhost",
    "x" * 300,
    "a\nb",
    "..",
    "xn--" + "a" * 80,
    "::1",
    "256.1.1.1",
    "\u2025",
)
KEYS = 64
"""Limited so that fuzzing does not fill the members."""
BROKEN = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"ok\xfe")
_SERVICES = tuple(SERVICES)
HARMLESS = frozenset({"refill", "accept-loss", "reset-lost"})
"""Actions that do nothing to a healthy cluster."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that a stranger can find out, or knows."""

    cluster: str
    partition_count: int
    members: tuple[str, ...]
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Raw:
    content: bytes


@dataclass(slots=True)
class Talk:
    door: str
    pieces: list[bytes]
    count: int
    challenged: Callable[[bytes, bytes], bytes] | None = None
    """At the member port: makes the greeting from the opening and the TLS channel binding."""
    reads: bool = True
    ends: str = "closes"
    """`closes`, `resets`, or `stays` open for a while."""


# -- MessagePack, also forms that no encoder makes


def pack(value: object) -> bytes:
    if isinstance(value, Raw):
        return value.content
    if isinstance(value, list):
        return _head(0x90, 0xDC, len(value)) + b"".join(map(pack, value))
    if isinstance(value, dict):
        inside = (part for pair in value.items() for part in pair)
        return _head(0x80, 0xDE, len(value)) + b"".join(map(pack, inside))
    return msgspec.msgpack.encode(value)


def _head(short: int, long: int, count: int) -> bytes:
    if count < 16:
        return bytes((short | count,))
    return bytes((long + 1,)) + count.to_bytes(4, "big")


class Liar:
    def __init__(self, draw: random.Random, facts: Facts, *, rough: bool) -> None:
        self.draw = draw
        self.facts = facts
        self.rough = rough

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def breaks(self, share: float) -> bool:
        """True in this share of cases of a rough talk."""
        return self.rough and self.chance(share)

    # -- values of a type

    def number(self, low: int | None = None, high: int | None = None) -> int:
        """A number: small, at an edge, or arbitrary; mostly within the bounds, if there are any."""
        pick = self.draw.random()
        if pick < 0.5:
            return self.draw.randint(low or 0, min(high if high is not None else 9, (low or 0) + 9))
        if pick < 0.9:
            return self.draw.choice(NUMBERS)
        return self.draw.getrandbits(64) - (1 << 63)

    def text(self, field: str = "") -> str:
        """A name, mostly one that fits the field."""
        if field in ("map", "name") and self.chance(0.6):
            return self.draw.choice(NAMES[:4])
        if "host" in field:
            return self.draw.choice(HOSTS)
        if field in ("uuid", "member", "source", "destination", "cluster_id"):
            return self.draw.choice(("aa-01", "f" * 33, "hello", "", f"{self.draw.getrandbits(64):x}"))
        return self.draw.choice(NAMES)

    def key(self) -> bytes:
        return (-7).to_bytes(4, "big", signed=True) + self.draw.randrange(KEYS).to_bytes(4, "big")

    def blob(self) -> bytes:
        pick = self.draw.random()
        if pick < 0.6:
            return self.key()
        if pick < 0.99:
            return self.draw.randbytes(self.draw.choice((0, 1, 3, 4, 7, 8, 15, 16, 17, 60, 300)))
        return self.draw.randbytes(1 << self.draw.randrange(10, 18))

    def of(self, kind: inspect.Type, field: str = "") -> Any:
        draw = self.draw
        match kind:
            case inspect.IntType(ge=low, le=high):
                if "partition" in field and self.chance(0.8):
                    return draw.randrange(self.facts.partition_count)
                return self.number(low, high)
            case inspect.StrType():
                return self.text(field)
            case inspect.BytesType():
                if field == "cut":
                    return bytes(15) + bytes((self.draw.randrange(9),)) if self.chance(0.7) else b""
                return self.blob()
            case inspect.BoolType():
                return self.chance(0.5)
            case inspect.NoneType():
                return None
            case inspect.EnumType(cls=cls):
                return draw.choice([one.value for one in cls])
            case inspect.LiteralType(values=values):
                return draw.choice(list(values))
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return [self.of(item, field) for _ in range(draw.choice((0, 0, 1, 1, 2, 3, 9)))]
            case inspect.TupleType(item_types=items):
                return [self.of(item, field) for item in items]
            case inspect.DictType(key_type=key, value_type=value):
                return {self.of(key): self.of(value) for _ in range(draw.randrange(3))}
            case inspect.UnionType(types=types):
                return self.of(draw.choice(types), field)
            case inspect.StructType():
                return self.struct(kind)
        return None

    def struct(self, kind: inspect.StructType) -> Any:
        """Plain values of a struct; half of the requests are valid ones."""
        if kind.cls is Request and self.chance(0.5):
            return _plain(self.request())
        parts = [self.of(one.type, one.name) for one in kind.fields]
        return parts if kind.tag is None else [kind.tag, *parts]

    # -- corruption

    def spoil(self, tree: Any) -> Any:
        """The tree with one of its values replaced by an invalid one."""
        places = list(_places(tree))
        if not places:
            return self.wrong()
        holder, at = self.draw.choice(places)
        holder[at] = self.wrong(holder[at])
        return tree

    def wrong(self, was: object = None) -> Any:
        draw = self.draw
        pick = draw.randrange(12)
        if pick < 4 or (isinstance(was, int) and pick < 7):
            return draw.choice(NUMBERS)
        choices: list[Any] = [
            None,
            draw.choice(NAMES),
            draw.choice(HOSTS),
            [],
            {},
            1.5,
            Raw(b"\x91" * draw.choice((50, 2000, 20_000))),
            Raw(b"\x81\x01" * 2000),
            Raw(b"\xdd\xff\xff\xff\xff"),
            Raw(b"\xdb\xff\xff\xff\xff"),
            Raw(b"\xc6\x7f\xff\xff\xff"),
            Raw(b"\xc1"),
            Raw(b"\xd4\x01\x00"),
            [draw.choice(NUMBERS)] * draw.choice((1, 100, 3000)),
        ]
        if isinstance(was, str) or self.chance(0.2):
            broken = draw.choice(BROKEN)
            return Raw(bytes((0xA0 + len(broken),)) + broken)
        return draw.choice(choices)

    def bend(self, data: bytes) -> bytes:
        bent = bytearray(data)
        for _ in range(self.draw.randint(1, 3)):
            at = self.draw.randrange(len(bent) + 1)
            edit = self.draw.randrange(5)
            if edit == 0 and at < len(bent):
                bent[at] = self.draw.randrange(256)
            elif edit == 1:
                bent[at : at + 4] = self.draw.choice(NUMBERS).to_bytes(9, "little", signed=True)[:4]
            elif edit == 2:
                del bent[at : at + self.draw.randint(1, 30)]
            elif edit == 3:
                bent[at:at] = self.draw.randbytes(self.draw.randint(1, 8))
            else:
                bent[at:at] = bent[at : at + 40]
        return bytes(bent)

    # -- the own protocol

    def question(self) -> bytes:
        kind = self.draw.choice(questions())
        if self.chance(0.4):
            kind = struct_of(own.Execute)
        tree = self.of(kind)
        if kind.cls is own.Execute and self.chance(0.9):
            tree = _plain(own.Execute(self.draw.randrange(1 << 16), self.request()))
        elif kind.cls is own.PutColumns and self.chance(0.8):
            tree = _plain(self.rows())
        elif kind.cls is own.Act and self.chance(0.9):
            tree[2], tree[3] = self.action()
        elif kind.cls is own.Hello and self.chance(0.5):
            tree = _plain(own.Hello(self.draw.choice(NUMBERS), own.VERSION, self.facts.cluster))
        if self.breaks(0.2):
            tree = self.spoil(tree)
        body = pack(tree)
        if self.breaks(0.05):
            body = self.bend(body)
        if _is_order(body):
            return b""
        length = len(body)
        if self.breaks(0.05):
            length = self.draw.choice((0, 1, length + 1, 1 << 20, 1 << 28, (1 << 32) - 1))
        return length.to_bytes(4, "little") + body

    def action(self) -> tuple[str, dict[str, Any]]:
        name = self.draw.choice(list(ACTIONS))
        kind = struct_of(ACTIONS[name])
        return name, {one.encode_name: self.of(one.type, one.name) for one in kind.fields}

    def request(self) -> Request:
        op = self.draw.choice(list(Op))
        if op in COLLECTION_STEPS:
            return self.collection_request(op)
        if op in CP_STEPS:
            return self.cp_step_request(op)
        name = self.text("map")
        key, value = self.key(), self.blob()
        if name == "__schemas":
            key, value = schema_entry(self.schema())
        key_hash = self.draw.choice((0, 0, 0, *NUMBERS))
        partition = partition_of(key, key_hash, self.facts.partition_count)
        items = [key, value] if op is Op.PUT_ALL else [key]
        partitions = list(range(self.facts.partition_count)) if op in WHOLE else [partition]
        ttl_ms, max_idle_ms = self.draw.choice((-1, 0, 1, 5000)), self.draw.choice((-1, 0, 3000))
        expected = value
        if op in STEPS:
            # A step of a transaction or of the move of a map.
            value = pack(self.of(struct_of(self.draw.choice(STEPS[op]))))
            if op is Op.FILL and self.chance(0.7):
                keys = sorted({self.key() for _ in range(self.draw.randint(1, 4))})
                values = [self.draw.choice((None, self.blob())) for _ in keys]
                number, attempt, place, round_ = (self.draw.randrange(4) for _ in range(4))
                value = encode_move(FillMap(number, attempt, place, keys, values, round=round_))
            name = name if op in MOVING else TRANSACTIONS_MAP
            expected = self.draw.choice((b"", b"z"))
        return Request(op, name, partitions, key, value, expected, items, ttl_ms, max_idle_ms, key_hash)

    def collection_request(self, op: Op) -> Request:
        """A valid step, except for its numbers."""
        if op in COLLECTION_CHANGES and self.chance(0.2):
            return self.lock_request(op)
        kind = self.draw.choice(
            [kind for kind, steps in STEPS_OF.items() if any(one.op is op for one in steps)]
        )
        name = self.draw.choice(NAMES[:4])
        step = CollectionStep(
            self.draw.choice(sorted(one for one in STEPS_OF[kind] if one.op is op)),
            self.number(),
            self.number(),
            self.draw.choice((0, 0, 1, 3000, *NUMBERS)),
            self.draw.choice((0, 3, *NUMBERS)),
            self.draw.choice((0, 1, 3, *NUMBERS)),
            self.draw.choice((0, 0, 1, 5000)),
        )
        partition = partition_of_name(name, self.facts.partition_count)
        if self.chance(0.2):
            partition = self.draw.randrange(self.facts.partition_count)
        items = [self.blob() for _ in range(self.draw.choice((0, 1, 1, 1, 2, 9)))]
        key = self.key() if kind.is_spread else b""
        return Request(op, kind.map_of(name), [partition], key=key, value=encode_step(step), items=items)

    def lock_request(self, op: Op) -> Request:
        steps = sorted(one for one in LOCK_STEPS if one.op is op)
        step = CollectionStep(self.draw.choice(steps), self.number(), wait_ms=self.draw.choice((0, 1, 3000)))
        key = self.key()
        partition = partition_of(key, 0, self.facts.partition_count)
        holder = bytes(self.draw.choice((0, OWNER_BYTES, OWNER_BYTES, OWNER_BYTES, OWNER_BYTES + 1)))
        lease_ms = self.draw.choice((-1, 0, 0, 1, 5000))
        locks = locks_of(self.draw.choice(NAMES[:4]))
        return Request(
            op,
            locks,
            [partition],
            key=key,
            value=encode_step(step),
            ttl_ms=lease_ms,
            max_idle_ms=0,
            holder=holder,
        )

    def cp_step_request(self, op: Op) -> Request:
        """A valid step, except for its numbers."""
        kind = self.draw.choice([one for one in CpStepKind if one.op is op])
        sessions = [self.draw.randint(0, 9) for _ in range(self.draw.choice((0, 1, 3, 99)))]
        step = CpStep(
            kind,
            self.draw.choice((1, 2, *NUMBERS)),
            self.draw.choice((0, *NUMBERS)),
            self.draw.choice((None, self.blob())),
            self.draw.choice((None, self.blob())),
            self.draw.choice((-1, 1, 2, 3)),
            self.draw.choice((1, 2)),
            self.draw.randrange(100).to_bytes(16, "big"),
            self.draw.choice((0, 0, 1, 3000, *NUMBERS)),
            sessions,
        )
        of = self.draw.choice(list(OBJECTS)) if kind is CpStepKind.DESTROY else None
        request = cp_request(self.draw.choice(NAMES[:2]), self.facts.partition_count, step, "x", of)
        if self.chance(0.2):
            wild = msgspec.structs.replace(step, session=self.draw.choice(NUMBERS))
            request = msgspec.structs.replace(request, value=msgspec.msgpack.encode(wild))
        if self.chance(0.2):
            return msgspec.structs.replace(
                request, partitions=[self.draw.randrange(self.facts.partition_count)]
            )
        return request

    def schema(self) -> Schema:
        return Schema(self.draw.choice(("Flight", "Person")), [("id", 7), (self.draw.choice("abc"), 16)])

    def rows(self) -> own.PutColumns:
        keys = sorted({self.key() for _ in range(self.draw.randint(1, 9))})
        groups: dict[int, list[bytes]] = {}
        for key in keys:
            groups.setdefault(partition_of(key, 0, self.facts.partition_count), []).append(key)
        flat = [key for group in groups.values() for key in group]
        return own.PutColumns(
            self.draw.randrange(1 << 16),
            self.text("map"),
            list(groups),
            [len(group) for group in groups.values()],
            own.ColumnBatch.of(flat, [self.blob() for _ in flat]),
        )

    # -- the Hazelcast protocol

    def call(self, kind: int | None = None) -> bytes:
        chosen: int = self.draw.choice(_calls(self.rough)) if kind is None else kind
        correlation = self.draw.choice((self.draw.randrange(1 << 20), *NUMBERS[:-2]))
        partition = self.draw.choice(
            (-1, -1, self.draw.randrange(self.facts.partition_count), 9999, -(2**31))
        )
        fixed, _, variable = MESSAGES[chosen].layout.declaration.partition("|")
        sent = self.draw.getrandbits(24) if self.chance(0.05) else chosen
        head = struct.pack("<iqi", sent, correlation, partition) + b"".join(map(self.fixed, fixed.split()))
        parts = [hz.FRAME.pack(6 + len(head), hz.UNFRAGMENTED) + head]
        for name in variable.split():
            parts += self.variable(name)
        if self.breaks(0.05):
            self.draw.shuffle(parts)
        if self.breaks(0.15):
            at = self.draw.randrange(len(parts))
            parts[at] = self.draw.choice(
                (hz.NULL, hz.BEGIN, hz.END, hz.frame(self.blob()), self.reflag(parts[at]))
            )
        whole = self.fragments(parts) if self.chance(0.03) else hz.message(parts)
        return self.bend(whole) if self.breaks(0.1) else whole

    def fragments(self, parts: list[bytes]) -> bytes:
        """The request in fragments of one or a few frames."""
        if len(parts) < 2:
            return hz.message(parts)
        number = self.draw.randrange(1 << 40)
        cut = self.draw.randrange(1, len(parts))
        pieces = [parts[:cut], parts[cut:]] if self.chance(0.5) else [[part] for part in parts]
        flags = [hz.BEGIN_FRAGMENT, *[0] * (len(pieces) - 2), hz.END_FRAGMENT]
        if self.breaks(0.3):
            self.draw.shuffle(flags)
        sent = [
            hz.message([hz.FRAME.pack(hz.FIRST_FRAGMENT_FRAME_BYTES, flag) + hz.LONG.pack(number), *piece])
            for flag, piece in zip(flags, pieces, strict=True)
        ]
        if self.breaks(0.3):
            del sent[self.draw.randrange(len(sent))]
        return b"".join(sent)

    def reflag(self, part: bytes) -> bytes:
        length, flags = hz.FRAME.unpack_from(part)
        if self.chance(0.7):
            flags ^= 1 << self.draw.randrange(16)
        else:
            length = self.draw.choice((0, 5, 6, 7, -1, length + 1, 2**31 - 1, -(2**31), 17 << 20))
        return hz.FRAME.pack(length, flags) + part[6:]

    def fixed(self, name: str) -> bytes:
        size = struct.calcsize("<" + FIXED[name])
        if self.chance(0.7):
            usual = {"flags": 255, "serialization_version": 1, "ttl_ms": self.draw.choice((-1, 0, 1, 3000))}
            return usual.get(name, self.draw.randrange(2)).to_bytes(size, "little", signed=True)
        return (self.draw.choice(NUMBERS) & (2**64 - 1)).to_bytes(8, "little").ljust(size, b"\0")[:size]

    def variable(self, name: str) -> list[bytes]:
        if name in ("name", "cluster_name", "service", "username", "password") or name.startswith("client_"):
            return [self.text_frame(self.draw.choice(_SERVICES) if name == "service" else self.text(name))]
        if name in ("keys", "entries", "items"):
            count = self.draw.choice((0, 1, 2, 9, 300, ITEMS_MAX + 1 if self.breaks(0.1) else 3))
            pairs = [self.data_frame() for _ in range(count * (2 if name == "entries" else 1))]
            return [hz.BEGIN, *pairs, hz.END]
        if name == "pointers":
            return [
                hz.frame(b"".join(struct.pack("<i", self.draw.choice((-1, 0, 7, 2**31 - 1))) for _ in "ab"))
            ]
        if name == "names":
            texts = [self.text_frame(self.text("names")) for _ in range(self.draw.choice((0, 1, 2, 9)))]
            return [hz.BEGIN, *texts, hz.END]
        if name == "proxies":
            texts = [self.text_frame(self.draw.choice((self.text("name"), *_SERVICES))) for _ in range(4)]
            return [hz.BEGIN, *texts, hz.END]
        if name == "collections":
            one = [
                self.data_frame(),
                hz.BEGIN,
                *(self.data_frame() for _ in range(self.draw.randrange(3))),
                hz.END,
            ]
            return [hz.BEGIN, *one * self.draw.randrange(3), hz.END]
        if name == "group":
            group = self.text_frame(self.draw.choice(("default", "g", self.text("name"))))
            return [hz.BEGIN, hz.frame(self.draw.randbytes(16)), group, hz.END]
        if name == "version":
            replica = hz.UUID.pack(False, 1, self.draw.randrange(1 << 32))
            return [hz.frame(replica + hz.LONG.pack(self.draw.randrange(1 << 32)))]
        if name in ("schema", "schemas"):
            frames = _schema_frames(self)
            return [hz.BEGIN, *frames, hz.END] if name == "schemas" else frames
        return [self.data_frame()]

    def text_frame(self, text: str) -> bytes:
        if self.breaks(0.05):
            return hz.frame(self.draw.choice(BROKEN))
        return hz.NULL if self.chance(0.03) else hz.frame(text.encode())

    def data_frame(self) -> bytes:
        if self.chance(0.03):
            return hz.NULL
        word = self.draw.randbytes(4) if self.chance(0.1) else bytes(4)
        return hz.frame(word + (self.key() if self.chance(0.7) else self.blob()))

    # -- the member port

    def greeting(self) -> Callable[[bytes, bytes], bytes]:
        """The answer to the opening, on a TLS channel."""
        uuid = self.draw.choice((*self.facts.members, "aa-01", "bb-02"))
        host, port = "127.0.0.1", self.draw.choice((1, 9, 70_000, -1, 1 << 40))
        good = self.chance(0.8)
        secret = self.facts.secret if self.chance(0.9) else "guessed"
        spoiled = Liar(random.Random(self.draw.random()), self.facts, rough=True)  # noqa: S311  (a test)
        wild = self.draw.choice(HOSTS)

        nonce = self.draw.randbytes(NONCE_BYTES)

        def made(opening: bytes, channel: bytes) -> bytes:
            who = (uuid, host, 1) if good else (uuid, wild, port)
            tree: Any = [
                *who,
                nonce,
                [proof_of(secret, CONNECTS, opening, who, nonce, channel)],
                *OF_THIS_BUILD,
            ]
            if not good:
                tree = spoiled.spoil(tree)
            body = pack(tree)
            return len(body).to_bytes(4, "little") + body

        return made

    def message(self) -> bytes:
        kind = self.draw.choice(member_messages())
        tree = self.of(kind)
        if self.breaks(0.2):
            tree = self.spoil(tree)
        body = pack(tree)
        if self.breaks(0.1):
            body = self.bend(body)
        sort = DATAGRAM
        if self.chance(0.4):
            sort = PACKET
            body = HEADER.pack(self.draw.getrandbits(64), self.draw.choice((0, 1, 2, 2**63)), 0) + body
        length = FRAME.size - 4 + len(body)
        if self.breaks(0.05):
            sort, length = (
                self.draw.randrange(256),
                self.draw.choice((0, 1, length + 1, 1 << 20, (1 << 32) - 1)),
            )
        return FRAME.pack(length, sort) + body


def _places(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if isinstance(tree, list):
        for at, value in enumerate(tree):
            found.append((tree, at))
            found += _places(value)
    return found


def _plain(message: object) -> Any:
    return msgspec.to_builtins(message, builtin_types=(bytes,))


def _is_order(body: bytes) -> bool:
    """Whether a member would carry it out as an operator's action."""
    try:
        question = own.read_question(body)
    except ProtocolError:
        return False
    if not isinstance(question, own.Act) or question.action in HARMLESS:
        return False
    try:
        read_action(question.action, question.fields)
    except ProtocolError:
        return False
    return True


def _schema_frames(liar: Liar) -> list[bytes]:
    schema = liar.schema()
    found = [hz.BEGIN, liar.text_frame(schema.type_name), hz.BEGIN]
    for name, kind in schema.fields:
        found += (
            hz.BEGIN,
            hz.frame(hz.INT.pack(kind)[: 2 if liar.breaks(0.2) else 4]),
            liar.text_frame(name),
            hz.END,
        )
    return [*found, hz.END, hz.END]


@cache
def _calls(rough: bool) -> list[int]:
    """A second, wrong authentication ends the connection, so only rough talks have it."""
    return [kind for kind in MESSAGES if rough or kind not in authentication.MESSAGES]


@cache
def questions() -> list[inspect.StructType]:
    return [struct_of(kind) for kind in get_args(own.Question)]


@cache
def member_messages() -> list[inspect.StructType]:
    return [struct_of(kind) for kind in get_args(Message)]


STEPS: dict[Op, list[type]] = {
    Op.FILL: [FillMap],
    Op.MOVE: [kind for kind in get_args(MoveStep) if kind is not FillMap],
    Op.TRANSACT: [LockKeys, PrepareBranch],
    Op.SETTLE: [kind for kind in get_args(TransactionStep) if kind not in (LockKeys, PrepareBranch)],
}
"""Requests whose value is one of these structs."""


def struct_of(kind: type) -> inspect.StructType:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType), info
    return info


# -- talks


def login(facts: Facts) -> bytes:
    head = struct.pack("<iqi", authentication.AUTHENTICATE, 1, -1) + hz.UUID.pack(False, 1, 2) + b"\x01"
    first = hz.FRAME.pack(6 + len(head), hz.UNFRAGMENTED) + head
    return hz.message(
        [first, hz.frame(facts.cluster.encode()), hz.NULL, hz.NULL, hz.text("PYH"), hz.text("5.5")]
    )


def _crowd(draw: random.Random, facts: Facts) -> Talk:
    """A message with as many small parts as fit, to block a member for as long as possible."""
    door = draw.choice((CLIENTS, OWN, HTTP))
    crowds = {CLIENTS: CLIENT_CROWDS, OWN: OWN_CROWDS, HTTP: HTTP_CROWDS}[door]
    before = {CLIENTS: b"CP2" + login(facts), OWN: own.PREAMBLE + own.frame(own.Hello(1, own.VERSION))}
    made = crowds[draw.choice(sorted(crowds))](draw.choice(CROWD_BYTES))
    return Talk(door, [before.get(door, b""), made], 1, None, draw.random() < 0.9, "closes")


def talk(seed: int, number: int, facts: Facts) -> Talk:
    many = random.Random(f"crowd/{seed}/{number}")  # noqa: S311  (to be had again)
    if many.random() < CROWD_SHARE:
        return _crowd(many, facts)
    at_http = random.Random(f"http/{seed}/{number}")  # noqa: S311  (to be had again)
    if at_http.random() < HTTP_SHARE:
        count = at_http.randint(1, MESSAGES_MAX)
        ends = at_http.choice(("closes", "resets", "stays"))
        return Talk(HTTP, http_pieces(at_http, count), count, None, at_http.random() < 0.9, ends)
    draw = random.Random(f"{seed}/{number}")  # noqa: S311  (to be had again)
    rough = draw.random() < ROUGH
    liar = Liar(draw, facts, rough=rough)
    door = draw.choice(DOORS)
    count = draw.randint(1, MESSAGES_MAX)
    known = not liar.breaks(0.3)
    challenged = None
    if door == CLIENTS:
        pieces = [b"CP2" + (login(facts) if known else b"")] + [liar.call() for _ in range(count)]
    elif door == OWN:
        hello = own.frame(own.Hello(1, own.VERSION, facts.cluster)) if known else b""
        pieces = [own.PREAMBLE + hello] + [liar.question() for _ in range(count)]
    else:
        challenged = liar.greeting()
        pieces = [liar.message() for _ in range(count)]
    if liar.breaks(0.1):
        draw.shuffle(pieces)
    if liar.breaks(0.1):
        pieces[draw.randrange(len(pieces))] = draw.randbytes(draw.choice((1, 3, 30, 3000, 100_000)))
    if liar.chance(0.1):
        # Cut at a random place.
        pieces[-1] = pieces[-1][: draw.randrange(len(pieces[-1]) + 1)]
    ends = draw.choice(("closes", "closes", "resets", "stays"))
    return Talk(door, pieces, count, challenged, liar.chance(0.9), ends)


__all__ = [
    "CLIENTS",
    "HTTP",
    "MEMBERS",
    "OWN",
    "Facts",
    "Liar",
    "Talk",
    "pack",
    "questions",
    "struct_of",
    "talk",
]
