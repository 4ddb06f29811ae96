"""The handshake of Holdfast's own protocol: version, login, cluster name, and a place among the clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.config import LimitSettings
from holdfast.server.flow import Work
from holdfast.server.logins import Login, LoginAnswer
from holdfast.server.reply_channel import ReplyChannel
from holdfast.server.rights import EVERYTHING
from holdfast.wire import own


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A member's facts for each client."""

    request_ids: int = 0
    """Number of requests that a partition remembers."""
    release: str = ""


class Handshake:
    """Authenticates and admits the client. A client may repeat `Hello`, as the same user and for the same use."""

    __slots__ = (
        "_admit",
        "_capabilities",
        "_limits",
        "_replies",
        "admitted",
        "operates",
        "peer",
        "pending",
        "rights",
    )

    def __init__(
        self,
        replies: ReplyChannel,
        admit: Callable[[bool], str],
        *,
        limits: LimitSettings,
        capabilities: Capabilities,
        peer: str,
    ) -> None:
        """`admit` takes whether the client is an operator, and returns why there is no place for it."""
        self._replies = replies
        self._admit = admit
        self._limits = limits
        self._capabilities = capabilities
        self.peer = peer
        self.rights = EVERYTHING
        """The client's permissions; valid once it is admitted."""
        self.operates = False
        """Whether the client only reads status and gives orders."""
        self.pending = False
        """Whether a login is being checked: no other input is read before the result."""
        self.admitted = False

    def answer(self, hello: own.Hello, frames: own.Frames) -> None:
        """Check the login, now or later. The larger limit for frames applies from the moment of admission."""
        replies = self._replies
        if hello.version != own.VERSION:
            detail = f"this member speaks version {own.VERSION} of the protocol, not {hello.version}"
            replies.end(own.FaultKind.UNSUPPORTED, detail, hello.id)
            return
        login = Login(hello.username, hello.password, hello.token, self.peer)
        self.pending = True
        at_once = True

        def checked(answer: LoginAnswer) -> None:
            if at_once:
                self._welcome(hello, answer, frames)
            elif not replies.gone:
                replies.flow.begin(later(answer))

        def later(answer: LoginAnswer) -> Work:
            yield
            self._welcome(hello, answer, frames)
            replies.flow.rest = not replies.gone

        replies.grid.log_in(login, lambda: not replies.gone, checked)
        at_once = False

    def _welcome(self, hello: own.Hello, answer: LoginAnswer, frames: own.Frames) -> None:
        replies, grid, limits = self._replies, self._replies.grid, self._limits
        self.pending = False
        rights = answer.rights
        if rights is None:
            kind = own.FaultKind.NOT_READY if answer.again else own.FaultKind.DENIED
            replies.end(kind, answer.again or "the credentials are missing or wrong", hello.id)
            return
        if self.admitted and rights is not self.rights:
            detail = "a connection is of one user: open another one"
            replies.end(own.FaultKind.DENIED, detail, hello.id)
            return
        if self.admitted and hello.operates is not self.operates:
            # An operator's connection has a place of its own, and is read while clients are not.
            detail = "a connection is an operator's or a client's: open another one"
            replies.end(own.FaultKind.DENIED, detail, hello.id)
            return
        if hello.cluster is not None and hello.cluster != grid.cluster_name:
            detail = f"this member belongs to cluster {grid.cluster_name!r}, not {hello.cluster!r}"
            replies.end(own.FaultKind.DENIED, detail, hello.id)
            return
        full = "" if self.admitted else self._admit(hello.operates)
        if full:
            replies.end(own.FaultKind.NOT_READY, full, hello.id)
            return
        self.admitted = True
        self.rights = rights
        self.operates = hello.operates
        frames.limit = limits.frame_bytes
        frames.skips = True
        replies.send(
            own.HelloOk(
                hello.id,
                own.VERSION,
                grid.member_uuid,
                grid.cluster_id,
                grid.cluster_name,
                grid.partition_count,
                limits.frame_bytes,
                self._capabilities.request_ids,
                self._capabilities.release,
                limits.key_bytes,
                limits.value_bytes,
            )
        )
