"""A user who may do little says whatever there is to say, and a judge who knows the rules looks at every answer.

There are four maps. Of `vault` no rule speaks; `shelf` may be read, `box` may be stored into, with `own` nearly
everything may be done. The judge shares nothing with the members' table of permissions: he goes by what a call does, as
its name says. He also knows texts that stand in `vault` and `box` alone, and looks for these in every byte that comes
back; and at the end he sees whether anything is other than it was.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.client.blocking import Client
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.operations import READS, Op, Request
from holdfast.core.model.transaction_orders import OperateIn, StoreTogether
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.server.hazelcast import authentication
from holdfast.server.hazelcast.hazelcast_session import MESSAGES
from holdfast.server.hazelcast.names import name_of
from holdfast.wire import own
from holdfast.wire.hazelcast import hazelcast_frames as hz
from holdfast.wire.hazelcast.layouts import Call
from holdfast.wire.values import to_stored
from holdfast_lab.fuzz.hostile import Facts, Liar, pack, questions, struct_of
from holdfast_lab.fuzz.secured import config_of, connected
from holdfast_lab.processes.local_cluster import LocalCluster

ROOT, GUEST = ("root", "the password of root"), ("guest", "the password of guest")
VAULT, SHELF, BOX, OWN = "vault", "shelf", "box", "own"
RESERVED = ("__objects", "__schemas", "__schemas.spark", "__transactions", "__service:s", "__x")
SECRET = b"KNOWN-TO-FEW"
"""Stands in the keys and values of `vault` and `box`."""
ENTRIES = 50
NOT_PERMITTED = 64
"""The error code of the protocol."""
WORDS = "may not do this"
OF_OWN = "read put remove destroy listen lock changes"
"""Everything but cuts: a cut is held and ended by its id, whatever maps it is of."""
CONFIG = f"""
[cluster]
name = "ruled"
[users.{ROOT[0]}]
passwords = ["{ROOT[1]}"]
roles = ["admin"]
[users.{GUEST[0]}]
passwords = ["{GUEST[1]}"]
roles = ["guest"]
[roles.guest]
rules = ["map {SHELF} read", "map {BOX} put", "map {OWN} {OF_OWN}", "transaction * use"]
"""
TALK_MESSAGES = 40
PATIENCE_S = 10.0

# What a call does, by its name.
READING = re.compile(r"^(get(?!ForUpdate)|fetch[KE]|load|contains|keySet|values|entr|size|isEmpty|isLocked)")
STORING = re.compile(r"^(set|tryPut|putTransient|putAll|flush)")
OF_REGISTRATIONS = re.compile(r"^remove\w*Listener$")
"""These undo what the connection has done, whatever name they give."""
OPERATIONS_STORING = frozenset({Op.SET, Op.TRY_PUT, Op.PUT_ALL, Op.SET_TTL})
OPERATORS = (
    own.AskStatus,
    own.Watch,
    own.AskDigests,
    own.AskRanges,
    own.AskZoneDigests,
    own.Order,
    own.AskMetastore,
    own.OrderZone,
    own.Cut,
    own.HoldCut,
)
"""What an operator asks or orders: none of it is permitted."""


@dataclass(slots=True)
class Judgement:
    """What was found."""

    said: int = 0
    talks: int = 0
    answered: int = 0
    refused: int = 0
    ended: int = 0
    """Talks that a member ended before all was said: a request that cannot be understood ends its connection."""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Guest(Liar):
    """Says what is in good form, of the four maps and of those that members keep."""

    def text(self, field: str = "") -> str:
        if field in ("map", "name", "maps"):
            return self.draw.choice((VAULT, VAULT, SHELF, SHELF, BOX, BOX, OWN, self.draw.choice(RESERVED)))
        return super().text(field)

    def numbered(self, number: int, kind: int) -> bytes:
        """A request of the Hazelcast protocol with this correlation id."""
        made = self.call(kind)
        return made[: hz.FRAME.size + 4] + number.to_bytes(8, "little") + made[hz.FRAME.size + 12 :]

    def asked(self, number: int) -> own.Question | None:
        """A question of the own protocol; None: what was made is none."""
        if self.chance(0.3):
            return own.Execute(number, self.request())
        tree = self.of(struct_of(own.Execute) if self.chance(0.1) else self.draw.choice(questions()))
        tree[1] = number
        try:
            question = own.read_question(pack(tree))
        except ProtocolError:
            return None
        return None if isinstance(question, own.Hello) else question


# -- what is right


def names_of(call: Call) -> set[str]:
    """The maps that a request names."""
    return {name for name in (call.name, *call.names, *(name for name, _ in call.proxies)) if name}


def response_problem(call: Call, code: int | None) -> str:
    """What is wrong with the answer to this request of the Hazelcast protocol. `code`: of the error, if it is one."""
    service, _, verb = name_of(call.kind).partition(".")
    names = names_of(call)
    if OF_REGISTRATIONS.match(verb):
        return ""
    if code is None:
        if names & {VAULT, *RESERVED}:
            return "let through"
        if SHELF in names and not READING.match(verb) and verb not in ("createProxy", "createProxies"):
            return "let through"
        if BOX in names and not STORING.match(verb) and verb not in ("createProxy", "createProxies"):
            return "let through"
        if service == "Client" and verb in ("addPartitionLostListener", "addMigrationListener"):
            return "let through"
    elif code == NOT_PERMITTED and service in ("Map", "TransactionalMap"):
        permitted = (
            names == {OWN}
            or (names == {SHELF} and bool(READING.match(verb)))
            or (names == {BOX} and bool(STORING.match(verb)))
        )
        return "refused" if permitted else ""
    return ""


def answer_problem(question: own.Question, answer: own.Answer) -> str:
    """The same of a question of the own protocol."""
    names, storing, reading = _of_question(question)
    if isinstance(answer, own.Fault):
        permitted = names == {OWN} or (names == {SHELF} and reading) or (names == {BOX} and storing)
        return "refused" if permitted and WORDS in answer.detail else ""
    if isinstance(question, OPERATORS):
        return "let through"
    if names & {VAULT, *RESERVED} or (SHELF in names and not reading) or (BOX in names and not storing):
        return "let through"
    if isinstance(question, own.Execute) and question.request.op in (Op.CALL, Op.ASK):
        return "let through"
    return ""


def _of_question(question: own.Question) -> tuple[set[str], bool, bool]:
    """The maps that it names, and whether it does nothing but store, or read."""
    match question:
        case own.Execute(request=request):
            return _of_request(request)
        case own.OrderTransaction(order=OperateIn(request=request)):
            # Of no transaction of this connection: whoever asks is refused.
            return {name for name in _of_request(request)[0] if name != OWN}, False, False
        case own.OrderTransaction(order=StoreTogether(map=name)):
            return {name}, True, False
        case own.PutColumns(map=name, kinds=kinds):
            return {name}, own.PutKind.REMOVE not in kinds, False
        case own.Scan(map=name):
            return {name}, False, True
        case own.AskHeads(map=name) | own.AskChanges(map=name):
            return {name}, False, False
        case _:
            return set(), False, False


def _of_request(request: Request) -> tuple[set[str], bool, bool]:
    if request.op in (Op.CALL, Op.ASK, Op.TRANSACT, Op.SETTLE):
        return set(), False, False
    return {request.map}, request.op in OPERATIONS_STORING, request.op in READS


# -- a talk


class Talking:
    """One connection of the guest."""

    def __init__(
        self, address: str, guest: Guest, found: Judgement, number: int, tls: ClientTls | None
    ) -> None:
        self._guest = guest
        self._found = found
        self._number = number
        host, _, port = address.rpartition(":")
        self._socket = connected((host, int(port)), PATIENCE_S, tls)
        self._come = b""

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> bool:
        """Wait for something; False when nothing comes any more."""
        try:
            piece = self._socket.recv(1 << 16)
        except (TimeoutError, OSError):
            return False
        self._come += piece
        if SECRET in self._come:
            self._wrong("an answer tells what only others may know")
        return bool(piece)

    def _say(self, data: bytes) -> bool:
        """False when nobody listens any more."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        self._found.said += 1
        return True

    def _wrong(self, what: str) -> None:
        self._found.wrong.append(f"talk {self._number}: {what}")

    def _judged(self, why: str, what: str, *, refused: bool) -> None:
        self._found.answered += 1
        self._found.refused += refused
        if why:
            self._wrong(f"{why}: {what[:300]}")

    # -- the Hazelcast protocol

    def speak_hazelcast(self, count: int) -> None:
        """Log in, and say so many requests one after the other."""
        self._socket.sendall(b"CP2" + _login())
        welcome = next(self._messages(), b"")
        if not welcome or welcome[hz.RESPONSE.size] != authentication.ADMITTED:
            self._wrong("the guest is not let in")
            return
        kinds = [kind for kind in MESSAGES if kind not in authentication.MESSAGES]
        for number in range(2, count + 2):
            kind = self._guest.draw.choice(kinds)
            data = self._guest.numbered(number, kind)
            kind = hz.REQUEST.unpack_from(data)[2]
            answer = self._answer_to(number) if self._say(data) else None
            if answer is None:
                self._found.ended += 1
                return
            code = _code_of(answer)
            call = _read(kind, data)
            if call is not None:
                what = f"{name_of(kind)} of {sorted(names_of(call))} {call.service}: code {code}"
                self._judged(response_problem(call, code), what, refused=code == NOT_PERMITTED)

    def _answer_to(self, number: int) -> bytes | None:
        for message in self._messages():
            flags = int.from_bytes(message[4:6], "little")
            if not flags & hz.IS_EVENT and hz.RESPONSE.unpack_from(message)[3] == number:
                return message
        return None

    def _messages(self) -> Iterator[bytes]:
        """Whole messages, as they come."""
        while True:
            end = _end_of_first(self._come)
            if end:
                message = self._come[:end]
                self._come = self._come[end:]
                yield message
            elif not self._more():
                return

    # -- the own protocol

    def speak_own(self, count: int) -> None:
        """The same with questions of the own protocol."""
        user, password = GUEST
        hello = own.Hello(1, own.VERSION, "ruled", user, password)
        self._socket.sendall(own.PREAMBLE + own.frame(hello))
        frames = own.Frames(1 << 28)
        if not isinstance(self._told(frames, 1), own.HelloOk):
            self._wrong("the guest is not let in")
            return
        for number in range(2, count + 2):
            question = self._guest.asked(number)
            if question is None:
                continue
            answer = self._told(frames, number) if self._say(own.frame(question)) else None
            if answer is None:
                self._found.ended += 1
                return
            refused = isinstance(answer, own.Fault) and WORDS in answer.detail
            told = f"{question!r:.200} was answered {answer!r:.100}"
            self._judged(answer_problem(question, answer), told, refused=refused)

    def _told(self, frames: own.Frames, number: int) -> own.Answer | None:
        while True:
            frames.feed(self._come)
            self._come = b""
            while (body := frames.take()) is not None:
                answer = own.read_answer(body)
                if answer.id == number:
                    return answer
            if not self._more():
                return None


def _end_of_first(data: bytes) -> int:
    """Where the first message ends; 0 while it is not whole."""
    at = 0
    while at + hz.FRAME.size <= len(data):
        length, flags = hz.FRAME.unpack_from(data, at)
        at += length
        if flags & hz.IS_FINAL:
            return at if at <= len(data) else 0
    return 0


def _login() -> bytes:
    head = _login_head()
    names = ("ruled", *GUEST, "PYH", "5.5")
    return hz.message([head, *map(hz.text, names)])


def _login_head() -> bytes:
    fixed = hz.INT.pack(authentication.AUTHENTICATE) + hz.LONG.pack(1) + hz.INT.pack(-1)
    fixed += hz.UUID.pack(False, 1, 2) + b"\x01"
    return hz.FRAME.pack(hz.FRAME.size + len(fixed), hz.UNFRAGMENTED) + fixed


def _code_of(answer: bytes) -> int | None:
    """The error code in an answer; None: it is no error."""
    length, _, kind = hz.RESPONSE.unpack_from(answer)[:3]
    if kind != 0:
        return None
    return int(hz.INT.unpack_from(answer, length + 3 * hz.FRAME.size)[0])


def _read(kind: int, data: bytes) -> Call | None:
    try:
        return MESSAGES[kind].layout.decode(data, 0, len(data)) if kind in MESSAGES else None
    except HoldfastError:
        return None


# -- the run


def _fill(client: Client) -> dict[str, dict[bytes, bytes]]:
    """Store what the maps begin with; answers that."""
    kept: dict[str, dict[bytes, bytes]] = {}
    for name in (VAULT, SHELF, BOX, OWN):
        mark = "" if name in (SHELF, OWN) else SECRET.decode()
        kept[name] = {to_stored(f"{mark}{n}"): to_stored(f"{mark} value {n}") for n in range(ENTRIES)}
        for key, value in kept[name].items():
            client.set(name, key, value)
    return kept


def _held(client: Client, name: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for partition in range(client.partition_count):
        flat = client.execute(Request(Op.ENTRIES, name, [partition]))
        if isinstance(flat, list):
            pairs = [part for part in flat if isinstance(part, bytes)]
            found.update(zip(pairs[::2], pairs[1::2], strict=True))
    return found


def fuzz_rules(
    messages: int,
    seed: int,
    log_dir: Path | None = None,
    *,
    only: int | None = None,
    tls: ClientTls | None = None,
) -> Judgement:
    """Say so many messages to real members. `only`: this talk of the seed alone. `tls`: through TLS."""
    found = Judgement()
    with LocalCluster(2, CONFIG + config_of(tls), log_dir=log_dir, user=ROOT, tls=tls) as cluster:
        cluster.wait_settled()
        addresses = cluster.client_addresses()
        with Client(addresses, username=ROOT[0], password=ROOT[1], tls=tls) as client:
            kept = _fill(client)
            facts = Facts("ruled", client.partition_count, ())
            began_s = time.monotonic()
            number = only or 0
            while found.said < messages:
                draw = random.Random(f"{seed}/{number}")  # noqa: S311  (to be had again)
                talking = Talking(
                    addresses[number % len(addresses)], Guest(draw, facts, rough=False), found, number, tls
                )
                speak = talking.speak_hazelcast if draw.random() < 0.6 else talking.speak_own
                try:
                    speak(draw.randint(1, TALK_MESSAGES))
                finally:
                    talking.close()
                found.talks += 1
                number += 1
                if only is not None:
                    break
            found.seconds = time.monotonic() - began_s
            found.wrong += [
                f"{name} is not what it was" for name in (VAULT, SHELF) if _held(client, name) != kept[name]
            ]
            box = _held(client, BOX)
            if any(box.get(key) != value for key, value in kept[BOX].items()):
                found.wrong.append(f"entries of {BOX} are gone, or others")
        found.wrong += [
            f"{member.name} has ended:\n{member.log_tail()}" for member in cluster.members if not member.alive
        ]
    return found


__all__ = ["Guest", "Judgement", "answer_problem", "fuzz_rules", "response_problem"]
