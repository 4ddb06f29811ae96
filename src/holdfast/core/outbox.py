"""Collect the effects of one step, and carry notices between the machines of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.core.effects import Complete, Datagram, Effect, Note, Send, SetTimer
from holdfast.core.model.ids import MILLISECOND, Address, MemberId, Token
from holdfast.core.model.levels import HIGHEST
from holdfast.core.model.timer_name import TimerName

if TYPE_CHECKING:
    from holdfast.core.messages import Message
    from holdfast.core.model.notices import Notice


class Audience(Protocol):
    """Receives the notices of all machines of one member: the member itself."""

    def on_notice(self, notice: Notice) -> None:
        """Call the machines that this notice concerns, before returning."""


class Outbox:
    __slots__ = ("_audience", "effects", "epoch_ms", "level", "now_ns")

    def __init__(self, audience: Audience | None = None) -> None:
        """`audience`: None if no machine receives notices, as in tests of one machine."""
        self._audience = audience
        self.effects: list[Effect] = []
        self.level = HIGHEST
        """For sending and writing: that of the view (`core.model.levels`)."""
        self.now_ns = 0
        self.epoch_ms = 0
        """Wall clock, in milliseconds since 1970, at the member's monotonic time 0. For people and expiry alone."""

    def does(self, level: int) -> bool:
        """See membership/L-4."""
        return self.level >= level

    def wall_ms(self) -> int:
        """Milliseconds since 1970 at the time of the step, by this member's clock."""
        return self.epoch_ms + self.now_ns // MILLISECOND

    def send(self, to: MemberId, message: Message) -> None:
        self.effects.append(Send(to, message))

    def send_datagram(self, address: Address, message: Message) -> None:
        self.effects.append(Datagram(address, message))

    def timer(self, name: TimerName, after_ns: int, jitter_ns: int = 0) -> None:
        self.effects.append(SetTimer(name, after_ns, jitter_ns))

    def note(self, kind: str, level: str = "info", **fields: object) -> None:
        self.effects.append(Note(kind, fields, level))

    def notify(self, notice: Notice) -> None:
        """Pass the notice to the other machines of this member before this returns."""
        if self._audience is not None:
            self._audience.on_notice(notice)

    def complete(self, token: Token, answer: object) -> None:
        self.effects.append(Complete(token, answer))

    def take(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class ReplyTarget(Protocol):
    """Gets the answer to a request of an operator, or a RequestError, once."""

    def __call__(self, answer: object, /) -> None: ...


class Reply:
    """Answers one request. Machines keep it until they can."""

    __slots__ = ("_out", "token")

    def __init__(self, out: Outbox, token: Token) -> None:
        self._out = out
        self.token = token

    def __call__(self, answer: object) -> None:
        self._out.complete(self.token, answer)
