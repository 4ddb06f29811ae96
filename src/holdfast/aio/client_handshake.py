"""The client's side of authentication in the Hazelcast client protocol."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from uuid import uuid4

from holdfast.client_core.message_decoding import Welcome, read_error, read_welcome
from holdfast.client_core.request_forms import AUTHENTICATE, RequestForm, form
from holdfast.config.addresses import format_address
from holdfast.config.client_tls import handshake_problem
from holdfast.errors import Denied, HoldfastError, NotReady
from holdfast.version import __version__
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, FRAME, INT, message, text, uuid

_SERIALIZATION_VERSION = b"\x01"


def no_tls(failed: ssl.SSLError, address: tuple[str, int]) -> HoldfastError:
    """NotReady if a retry of the failed TLS handshake may succeed, else Denied."""
    why = f"no TLS with {format_address(*address)}: {handshake_problem(failed)}"
    if isinstance(failed, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLWantReadError):
        return NotReady(why)
    return Denied(why)


@dataclass(frozen=True, slots=True)
class ClientHandshake:
    """Identity of a client, the same on all its connections."""

    uuid: bytes
    cluster_name: str
    username: str | None
    password: str | None

    @classmethod
    def new(cls, cluster_name: str, username: str | None, password: str | None) -> ClientHandshake:
        return cls(uuid(str(uuid4())), cluster_name, username, password)

    @property
    def form(self) -> RequestForm:
        return form(AUTHENTICATE, self.uuid + _SERIALIZATION_VERSION)

    @property
    def frames(self) -> bytes:
        # Cluster, user and password; type, version and name of the client; labels (none). PYH is the type of
        # the Hazelcast Python client.
        names = [text(self.cluster_name), text(self.username), text(self.password)]
        return message([*names, text("PYH"), text(__version__), text("holdfast.aio"), BEGIN, END])

    def read(self, answer: bytes, address: tuple[str, int]) -> Welcome:
        """Raises Denied, NotReady, ProtocolError."""
        if INT.unpack_from(answer, FRAME.size)[0] != AUTHENTICATE + 1:
            code, reason = read_error(answer)
            raise NotReady(
                f"{format_address(*address)} does not accept connections now: {reason} (error {code})"
            )
        welcome = read_welcome(answer)
        if welcome.status:
            raise Denied(
                f"{format_address(*address)} rejected this client (status {welcome.status}): "
                f"check cluster_name ({self.cluster_name!r}), username and password"
            )
        return welcome
