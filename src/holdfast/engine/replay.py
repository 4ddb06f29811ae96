"""Replays the members of a recording step by step, and reports the first step that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.config import Settings
from holdfast.core.effects import Effect
from holdfast.core.events import Event
from holdfast.core.hosted_services import Service
from holdfast.core.member import Member
from holdfast.core.primary_backup.lane import PLAIN, Ways
from holdfast.engine import recording
from holdfast.engine.recording import (
    Begun,
    CallbackBegun,
    CallbackEnded,
    LaneCall,
    Outside,
    Piece,
    RecordBroken,
    Run,
    Step,
    Stepped,
)

_ARGUMENTS: dict[str, msgspec.msgpack.Decoder[tuple[object, ...]]] = {
    "read": msgspec.msgpack.Decoder(tuple[str, bytes]),
    "set": msgspec.msgpack.Decoder(tuple[str, bytes, bytes, int, int, int]),
    "remove": msgspec.msgpack.Decoder(tuple[str, bytes]),
    "evict": msgspec.msgpack.Decoder(tuple[str, bytes]),
    "set_ttl": msgspec.msgpack.Decoder(tuple[str, bytes, int]),
    "rest_on": msgspec.msgpack.Decoder(tuple[str]),
    "close_batch": msgspec.msgpack.Decoder(tuple[int]),
    "close_batch_for": msgspec.msgpack.Decoder(tuple[int, bytes, list[int]]),
}


class Differs(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Happened:
    """One replayed step, call of the lane, or (`event` is None) beginning of a life."""

    number: int
    life: int
    name: str
    member: Member
    at_ns: int
    event: Event | LaneCall | Outside | None
    effects: Sequence[Effect]


class _Life:
    def __init__(self, piece: Begun, member: Member) -> None:
        self.name = piece.name
        self.member = member
        self.digest = b""


class Replay:
    def __init__(
        self,
        pieces: Iterator[Piece],
        services: Callable[[Sequence[str], Settings], Sequence[Service]],
        outside: Callable[[Member, str, bytes], None],
        ways: Ways = PLAIN,
    ) -> None:
        """`services` makes the services with these names; `outside` repeats changes from outside the model.
        `ways`: of the members.
        Raises RecordBroken, here and in `run`, for an unreadable recording.
        """
        self._pieces = pieces
        self._services = services
        self._outside = outside
        self._ways = ways
        self._lives: dict[int, _Life] = {}
        self.steps = 0
        self._at = "the beginning"
        first = next(pieces)
        assert isinstance(first, Run), "that was looked at"
        self.told = first.told

    def run(self) -> Iterator[Happened]:
        for piece in self._pieces:
            if isinstance(piece, Begun):
                yield self._begin(piece)
            elif isinstance(piece, Step):
                yield self._step(piece)
            elif isinstance(piece, LaneCall):
                yield self._call(piece)
            elif isinstance(piece, Outside):
                life = self._of(piece.life)
                self._outside(life.member, piece.what, piece.arguments)
                yield Happened(self.steps, piece.life, life.name, life.member, piece.at_ns, piece, ())
            else:
                raise Differs(f"after {self._at}: {_words(piece)}, and now nothing of the kind happens")

    def hashes(self) -> dict[str, str]:
        return {f"{number} {life.name}": life.digest.hex() for number, life in self._lives.items()}

    def _begin(self, piece: Begun) -> Happened:
        try:
            settings, identity = recording.settings_of(piece), recording.identity_of_life(piece)
        except (KeyError, TypeError, msgspec.MsgspecError) as error:
            raise RecordBroken(
                f"the settings of {piece.name} are not valid in this version of Holdfast: {error}"
            ) from error
        recovered = recording.recovered_of(piece.restored) if piece.restored is not None else None
        member = Member(
            identity,
            settings,
            self._services(piece.services, settings),
            recovered,
            self._ways,
        )
        self._lives[piece.life] = _Life(piece, member)
        return Happened(self.steps, piece.life, piece.name, member, piece.at_ns, None, ())

    def _of(self, life: int) -> _Life:
        found = self._lives.get(life)
        if found is None:
            raise RecordBroken(f"a step is of life {life}, which has not begun")
        return found

    def _next(self) -> Piece | None:
        return next(self._pieces, None)

    def _step(self, piece: Step) -> Happened:
        life = self._of(piece.life)
        self.steps += 1
        self._at = f"step {self.steps} ({life.name}, {piece.at_ns / 1e9:.4f} s, {piece.event})"
        event = recording.event_of(piece.event, piece.fields)
        try:
            effects = life.member.handle(event, piece.now_ns)
        except (Differs, RecordBroken):  # from the callback of a session within the step
            raise
        except Exception as error:
            if (said := self._next()) is not None:
                raise Differs(
                    f"{self._at}: {type(error).__name__}: {error}; it was {_words(said)}"
                ) from error
            return Happened(self.steps, piece.life, life.name, life.member, piece.at_ns, event, ())
        life.digest = recording.digest_of(life.digest, effects)
        said = self._next()
        if not isinstance(said, Stepped):
            raise Differs(f"{self._at}: it is over now; it was {_words(said)}")
        if said.life != piece.life or said.digest != life.digest:
            raise Differs(f"{self._at}: its effects differ now")
        return Happened(self.steps, piece.life, life.name, life.member, piece.at_ns, event, effects)

    def _call(self, piece: LaneCall) -> Happened:
        life = self._of(piece.life)
        self.steps += 1
        self._at = (
            f"step {self.steps} ({life.name}, {piece.at_ns / 1e9:.4f} s, {piece.call} on the data lane)"
        )
        lane = life.member.lane
        life.member.out.now_ns = piece.now_ns
        if piece.call not in _ARGUMENTS:
            raise RecordBroken(f"{piece.call} is no call of the data lane")
        try:
            arguments = _ARGUMENTS[piece.call].decode(piece.arguments)
        except msgspec.MsgspecError as error:
            raise RecordBroken(f"{self._at} cannot be read: {error}") from error
        if piece.call in ("close_batch", "close_batch_for"):
            seal, *more = arguments
            getattr(lane, piece.call)(lambda known: self._told(piece.life, seal, known), *more)
        else:
            copy = lane.leading[piece.partition]
            if copy is None:
                raise Differs(
                    f"{self._at}: this member is not the primary of partition {piece.partition} now"
                )
            getattr(lane, piece.call)(copy, *arguments)
        return Happened(self.steps, piece.life, life.name, life.member, piece.at_ns, piece, ())

    def _told(self, life: int, seal: object, known: bool) -> None:
        said = self._next()
        if said != CallbackBegun(life, seal, known):  # type: ignore[arg-type]
            words = f"seal {seal} is told that its outcome is {'known' if known else 'unknown'}"
            raise Differs(f"{self._at}: {words} now; it was {_words(said)}")
        while isinstance(said := self._next(), LaneCall):
            self._call(said)
        if not isinstance(said, CallbackEnded):
            raise Differs(f"{self._at}: a session that was told did something else: {_words(said)}")


def _words(piece: Piece | None) -> str:
    match piece:
        case None:
            return "the end of the record"
        case Step(_, at_ns, _, event):
            return f"{event} at {at_ns / 1e9:.4f} s"
        case LaneCall(call=call):
            return f"{call} on the data lane"
        case CallbackBegun(_, seal, known):
            return f"seal {seal}, told that its outcome is {'known' if known else 'unknown'}"
        case Stepped():
            return "the end of a step"
        case CallbackEnded():
            return "the end of what a session was told"
        case Begun(name=name):
            return f"the beginning of {name}"
        case Outside(what=what):
            return f"the world: {what}"
        case Run():
            return "the beginning of the record"
