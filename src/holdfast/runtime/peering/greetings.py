"""How two members prove to each other that they know the secret of their cluster, before anything else is said.

Who is connected to opens with the versions of the member protocol that it speaks, its UUID and a nonce. Who has
connected greets: who it is, where it is reached, what it speaks, a nonce of its own, and a proof for each secret that
it knows. Who is connected to looks whether one of these is made with a secret that it knows too, and welcomes with a
proof made with that same one. A proof is an HMAC-SHA-256 over all of it: the version of this greeting, what both speak,
both nonces, both UUIDs, the address, and what is unique to the TLS channel where there is one; so a greeting that is
passed on proves nothing, and nobody between the two makes them speak an older version. The two sides sign different
words: none can be answered with its own.

Both know then what the other speaks, and go on with the highest version that both do (`core.model.protocols`). If there
is none, both say so.

A secret is rolled by knowing two for a while: `security.second_member_secret`.
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
from holdfast.core.model.protocols import LOWEST, Speaks
from holdfast.version import __version__
from holdfast.wire import doors

OF_THIS_BUILD: Final = Speaks(build=__version__)
MAGIC = doors.MEMBER
"""Also the version of the greeting."""
UUID_BYTES = 36
NONCE_BYTES = 32
BUILD_BYTES = 24
_SPEAKS = struct.Struct(f"<HH{BUILD_BYTES}s")
OPENING_BYTES = doors.OPENING_BYTES
assert len(MAGIC) + _SPEAKS.size + UUID_BYTES + NONCE_BYTES == OPENING_BYTES, "what strangers may read over"
PROOF_BYTES = 32
PROOFS_MAX = 2
WELCOME = b"\x00"
WELCOME_BYTES = len(WELCOME) + PROOF_BYTES
CONNECTS, IS_CONNECTED_TO = b"connects", b"is connected to"


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """Who connects, where it can be reached, and the proofs."""

    uuid: str
    host: str
    port: int
    nonce: bytes
    proofs: list[bytes]
    """One for each secret that it knows, the one that it is to keep first."""
    lowest: int = LOWEST
    """The versions of the member protocol that it speaks."""
    highest: int = LOWEST
    build: str = ""

    @property
    def speaks(self) -> Speaks:
        """What it says that it speaks."""
        return Speaks(self.lowest, self.highest, self.build)


_greetings = msgspec.msgpack.Decoder(Greeting)


def secrets_of(security: SecuritySettings) -> tuple[str, ...]:
    """Those that prove a member, the one to be kept first; at most two."""
    return tuple(
        dict.fromkeys((security.member_secret, security.second_member_secret or security.member_secret))
    )


def opening_of(uuid: str, nonce: bytes, speaks: Speaks = OF_THIS_BUILD) -> bytes:
    """What the member `uuid` says first to whoever connects."""
    said = _SPEAKS.pack(speaks.lowest, speaks.highest, speaks.build.encode()[:BUILD_BYTES])
    return MAGIC + said + uuid.encode()[:UUID_BYTES].ljust(UUID_BYTES, b"\0") + nonce


def spoken_there(opening: bytes) -> Speaks:
    """What the one who has said this speaks."""
    lowest, highest, build = _SPEAKS.unpack_from(opening, len(MAGIC))
    return Speaks(lowest, highest, build.rstrip(b"\0").decode(errors="replace"))


def opened_by(opening: bytes) -> str:
    """Who says that it has opened so; nothing is proved by it."""
    at = len(MAGIC) + _SPEAKS.size
    return opening[at : at + UUID_BYTES].rstrip(b"\0").decode(errors="replace")


def channel_of(tls: ssl.SSLObject | None) -> bytes:
    """What both ends of this TLS connection know, and no other connection has; empty without TLS.

    It is the client's `Finished`, which OpenSSL tells for every version of TLS: an HMAC over the whole handshake, with
    both certificates.
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
    speaks: Speaks = OF_THIS_BUILD,
) -> bytes:
    """That whoever has this `role` knows the secret. `who`: the UUID, host and port of whoever connects, and `speaks`
    what it speaks.
    """
    said = msgspec.msgpack.encode([role, opening, *who, nonce, channel, *speaks])
    return hmac.new(secret.encode(), said, "sha256").digest()


def greeting_of(
    secrets: Sequence[str],
    opening: bytes,
    who: tuple[str, str, int],
    channel: bytes = b"",
    speaks: Speaks = OF_THIS_BUILD,
) -> Greeting:
    """What whoever connects answers to the opening."""
    nonce = os.urandom(NONCE_BYTES)
    proofs = [proof_of(secret, CONNECTS, opening, who, nonce, channel, speaks) for secret in secrets]
    return Greeting(*who, nonce, proofs, *speaks)


def framed(greeting: Greeting) -> bytes:
    """The greeting as it is sent."""
    body = msgspec.msgpack.encode(greeting)
    return len(body).to_bytes(4, "little") + body


def read_greeting(body: bytes | memoryview) -> Greeting:
    """Raises msgspec.DecodeError for what is none."""
    return _greetings.decode(body)


def shown_secrets(
    secrets: Sequence[str], opening: bytes, greeting: Greeting, channel: bytes = b""
) -> list[bool]:
    """Which of these secrets the one who greets has proved to know."""
    who = (greeting.uuid, greeting.host, greeting.port)
    shown = []
    for secret in secrets:
        expected = proof_of(secret, CONNECTS, opening, who, greeting.nonce, channel, greeting.speaks)
        shown.append(any(hmac.compare_digest(expected, proof) for proof in greeting.proofs[:PROOFS_MAX]))
    return shown


def welcome_of(secret: str, opening: bytes, greeting: Greeting, channel: bytes = b"") -> bytes:
    """What the one who is connected to answers, when it is let in."""
    who = (greeting.uuid, greeting.host, greeting.port)
    return WELCOME + proof_of(secret, IS_CONNECTED_TO, opening, who, greeting.nonce, channel, greeting.speaks)


def is_welcome(
    said: bytes, secrets: Sequence[str], opening: bytes, greeting: Greeting, channel: bytes = b""
) -> bool:
    """Whether it was said by somebody who knows one of the secrets."""
    return any(
        hmac.compare_digest(said, welcome_of(secret, opening, greeting, channel)) for secret in secrets
    )
