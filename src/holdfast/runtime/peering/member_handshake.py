"""Mutual authentication of two members by the shared secret of their cluster, before any other message.

Example: b connects to a.

1. a sends its *opening*: versions of the member protocol, its UUID, a nonce.
2. b sends its *greeting*: UUID, address, versions, a nonce, and one proof for each secret that it knows.
3. a looks for a proof by a secret that it knows too, and sends its *welcome*: a proof by the same secret.

A proof is an HMAC-SHA-256 over the whole handshake: opening, versions, nonces, UUIDs, address, and the binding to the
TLS channel, if any. So a replayed or forwarded greeting is worthless, and an attacker in between cannot lower the
version. The proof contains its sender's role, so it cannot be reflected. Both use the highest common version
(`core.model.protocols`), or end with an error.

To change the secret by a rolling restart, members accept two for a while: `security.second_member_secret`.
"""

from __future__ import annotations

import hmac
import os
import ssl
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.config import SecuritySettings
from holdfast.core.model.protocols import LOWEST, ProtocolRange
from holdfast.version import __version__
from holdfast.wire import doors

OF_THIS_BUILD: Final = ProtocolRange(build=__version__)
MAGIC = doors.MEMBER
UUID_BYTES = 36
NONCE_BYTES = 32
BUILD_BYTES = 24
_SPEAKS = struct.Struct(f"<HH{BUILD_BYTES}s")
OPENING_BYTES = doors.OPENING_BYTES
assert len(MAGIC) + _SPEAKS.size + UUID_BYTES + NONCE_BYTES == OPENING_BYTES, (
    "what connection_log may read over"
)
PROOF_BYTES = 32
PROOFS_MAX = 2
HANDSHAKE_TIMEOUT_S = 5.0
WELCOME = b"\x00"
WELCOME_BYTES = len(WELCOME) + PROOF_BYTES
CONNECTS, IS_CONNECTED_TO = b"connects", b"is connected to"


class HandshakeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Second message of a handshake, sent by the connecting member."""

    uuid: str
    host: str
    port: int
    nonce: bytes
    proofs: list[bytes]
    lowest: int = LOWEST
    highest: int = LOWEST
    build: str = ""

    @property
    def speaks(self) -> ProtocolRange:
        return ProtocolRange(self.lowest, self.highest, self.build)


_greetings = msgspec.msgpack.Decoder(HandshakeRequest)


def secrets_of(security: SecuritySettings) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys((security.member_secret, security.second_member_secret or security.member_secret))
    )


def opening_of(uuid: str, nonce: bytes, speaks: ProtocolRange = OF_THIS_BUILD) -> bytes:
    said = _SPEAKS.pack(speaks.lowest, speaks.highest, speaks.build.encode()[:BUILD_BYTES])
    return MAGIC + said + uuid.encode()[:UUID_BYTES].ljust(UUID_BYTES, b"\0") + nonce


def protocols_of(opening: bytes) -> ProtocolRange:
    lowest, highest, build = _SPEAKS.unpack_from(opening, len(MAGIC))
    return ProtocolRange(lowest, highest, build.rstrip(b"\0").decode(errors="replace"))


def uuid_of(opening: bytes) -> str:
    """The UUID that the sender of an opening claims; nothing proves it yet."""
    at = len(MAGIC) + _SPEAKS.size
    return opening[at : at + UUID_BYTES].rstrip(b"\0").decode(errors="replace")


def channel_of(tls: ssl.SSLObject | None) -> bytes:
    """The channel binding of this TLS connection; empty without TLS.

    It is the client's `Finished` message, which OpenSSL exposes for every version of TLS: an HMAC over the
    whole handshake with both certificates, known to both ends and different for each connection.
    """
    if tls is None:
        return b""
    found = tls.get_channel_binding("tls-unique")
    assert found, "the handshake has ended"
    return found


def proof_of(
    secret: str,
    role: bytes,
    opening: bytes,
    who: tuple[str, str, int],
    nonce: bytes,
    channel: bytes = b"",
    speaks: ProtocolRange = OF_THIS_BUILD,
) -> bytes:
    """A proof that the sender, in this `role`, knows the secret. `who`: UUID, host and port of the connecting
    member; `speaks`: its versions.
    """
    said = msgspec.msgpack.encode([role, opening, *who, nonce, channel, *speaks])
    return hmac.new(secret.encode(), said, "sha256").digest()


def request_of(
    secrets: Sequence[str],
    opening: bytes,
    who: tuple[str, str, int],
    channel: bytes = b"",
    speaks: ProtocolRange = OF_THIS_BUILD,
) -> HandshakeRequest:
    nonce = os.urandom(NONCE_BYTES)
    proofs = [proof_of(secret, CONNECTS, opening, who, nonce, channel, speaks) for secret in secrets]
    return HandshakeRequest(*who, nonce, proofs, *speaks)


def framed(request: HandshakeRequest) -> bytes:
    body = msgspec.msgpack.encode(request)
    return len(body).to_bytes(4, "little") + body


def read_request(body: bytes | memoryview) -> HandshakeRequest:
    """Raises msgspec.DecodeError."""
    return _greetings.decode(body)


def proved_secrets(
    secrets: Sequence[str], opening: bytes, request: HandshakeRequest, channel: bytes = b""
) -> list[bool]:
    """For each secret, whether the greeting has a proof of it."""
    who = (request.uuid, request.host, request.port)
    shown = []
    for secret in secrets:
        expected = proof_of(secret, CONNECTS, opening, who, request.nonce, channel, request.speaks)
        shown.append(any(hmac.compare_digest(expected, proof) for proof in request.proofs[:PROOFS_MAX]))
    return shown


def welcome_of(secret: str, opening: bytes, request: HandshakeRequest, channel: bytes = b"") -> bytes:
    who = (request.uuid, request.host, request.port)
    return WELCOME + proof_of(secret, IS_CONNECTED_TO, opening, who, request.nonce, channel, request.speaks)


def is_welcome(
    said: bytes, secrets: Sequence[str], opening: bytes, request: HandshakeRequest, channel: bytes = b""
) -> bool:
    return any(hmac.compare_digest(said, welcome_of(secret, opening, request, channel)) for secret in secrets)
