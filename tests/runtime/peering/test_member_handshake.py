"""Members prove to each other that they know the secret: what covers what, and what proves nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.runtime.certificates import HOST, Authority, Shown
from tests.runtime.in_process.test_embedded import cannot_join, cluster, member, run

from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import MemberProtocol
from holdfast.core.model.protocols import ProtocolRange, common_version, protocol_mismatch
from holdfast.runtime import node
from holdfast.runtime.peering.member_handshake import (
    CONNECTS,
    IS_CONNECTED_TO,
    NONCE_BYTES,
    OPENING_BYTES,
    WELCOME_BYTES,
    channel_of,
    framed,
    is_welcome,
    opening_of,
    proof_of,
    protocols_of,
    proved_secrets,
    request_of,
    welcome_of,
)
from holdfast.runtime.peering.member_network import MemberNetwork
from holdfast.version import __version__
from holdfast.wire import doors

WHO = ("aa", "127.0.0.1", 5751)
OPENING = opening_of("bb", bytes(NONCE_BYTES))


def test_each_knows_that_the_other_knows() -> None:
    greeting = request_of(["s"], OPENING, WHO, b"channel")
    assert proved_secrets(["s"], OPENING, greeting, b"channel") == [True]
    welcome = welcome_of("s", OPENING, greeting, b"channel")
    assert len(welcome) == WELCOME_BYTES
    assert is_welcome(welcome, ["s"], OPENING, greeting, b"channel")
    assert not is_welcome(
        welcome_of("t", OPENING, greeting, b"channel"), ["s"], OPENING, greeting, b"channel"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"opening": opening_of("cc", bytes(NONCE_BYTES))},
        {"opening": opening_of("bb", b"\1" * NONCE_BYTES)},
        {"opening": b"HFM4" + OPENING[4:]},
        {"uuid": "ab"},
        {"host": "127.0.0.2"},
        {"port": 5752},
        {"nonce": bytes(NONCE_BYTES)},
        {"channel": b"another"},
        {"channel": b""},
    ],
    ids=[
        "who is connected to",
        "its nonce",
        "version",
        "who connects",
        "host",
        "port",
        "nonce",
        "channel",
        "no TLS",
    ],
)
def test_a_proof_covers_the_whole_greeting(change: dict[str, object]) -> None:
    said = request_of(["s"], OPENING, WHO, b"channel")
    welcome = welcome_of("s", OPENING, said, b"channel")
    opening = change.pop("opening", OPENING)
    channel = change.pop("channel", b"channel")
    assert isinstance(opening, bytes) and isinstance(channel, bytes)
    heard = msgspec.structs.replace(said, **change)
    assert proved_secrets(["s"], opening, heard, channel) == [False]
    assert not is_welcome(welcome, ["s"], opening, heard, channel)


def test_the_two_sides_sign_different_words() -> None:
    nonce = bytes(NONCE_BYTES)
    assert proof_of("s", CONNECTS, OPENING, WHO, nonce) != proof_of("s", IS_CONNECTED_TO, OPENING, WHO, nonce)


def test_two_secrets_while_one_is_rolled() -> None:
    old, both, new = ["old"], ["new", "old"], ["new"]
    for knows, hears, shown in (
        (old, both, [False, True]),
        (both, old, [True]),
        (both, new, [True]),
        (new, both, [True, False]),
        (both, both, [True, True]),
        (old, new, [False]),
        (new, old, [False]),
    ):
        greeting = request_of(knows, OPENING, WHO)
        assert proved_secrets(hears, OPENING, greeting) == shown
        if any(shown):
            welcome = welcome_of(hears[shown.index(True)], OPENING, greeting)
            assert is_welcome(welcome, knows, OPENING, greeting)


def test_many_proofs_are_not_many_guesses() -> None:
    greeting = request_of([f"guess {number}" for number in range(50)] + ["s"], OPENING, WHO)
    assert proved_secrets(["s"], OPENING, greeting) == [False]


def test_a_greeting_that_is_passed_on_or_said_again_proves_nothing() -> None:
    """Real members: what one says to a stranger is of no use to him at another one, or a second time."""

    async def story() -> None:
        async with cluster(1, security__member_secret="geheim") as (first,):
            address = first.member_address

            async def knock(said: bytes) -> bytes:
                host, _, port = address.rpartition(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                opening = await reader.readexactly(OPENING_BYTES)
                writer.write(said or framed(request_of(["geheim"], opening, WHO_THERE)))
                heard = b""
                with suppress(asyncio.IncompleteReadError):
                    heard = await reader.readexactly(1)
                writer.close()
                return heard

            assert await knock(b"") == b"\0"
            replayed = framed(request_of(["geheim"], opening_of(first.uuid, bytes(NONCE_BYTES)), WHO_THERE))
            assert await knock(replayed) == doors.REFUSED_SECRET

    run(story())


WHO_THERE = ("0f0f0f0f-0000-4000-8000-000000000000", "127.0.0.1", 1)


def test_who_does_not_know_the_secret_is_not_joined() -> None:
    """Somebody who lets everybody in without knowing the secret himself."""

    async def story() -> None:
        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Also where the loop ends first: the member tries again.
            with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
                writer.write(opening_of(WHO_THERE[0], bytes(NONCE_BYTES)))
                length = int.from_bytes(await reader.readexactly(4), "little")
                await reader.readexactly(length)
                writer.write(b"\0" + bytes(WELCOME_BYTES - 1))
                assert await reader.read() == b"", "nothing is said to him"

        server = await asyncio.start_server(pretend, "127.0.0.1", 0, family=socket.AF_INET)
        async with server:
            host, port = server.sockets[0].getsockname()
            reason = r"security\.member_secret"
            await cannot_join(Exception, reason, f"{host}:{port}", security__member_secret="geheim")

    run(story())


# -- the channel


def handshake(authority: Authority, shown: Shown) -> tuple[bytes, bytes]:
    """What both ends of a TLS connection say that it is: the one that connects, and the other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=authority.file)
    connects = trusting.wrap_bio(here, there, server_hostname=HOST)
    connected = context.wrap_bio(there, here, server_side=True)
    for _ in range(4):
        for end in (connects, connected):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return channel_of(connects), channel_of(connected)


def test_both_ends_of_a_tls_connection_know_it_and_no_other_is_the_same(tmp_path: Path) -> None:
    """So a proof that is passed on over another connection is worth nothing."""
    authority = Authority(tmp_path, "ours")
    shown = authority.sign()
    one, other = handshake(authority, shown), handshake(authority, shown)
    assert one[0] == one[1] != b""
    assert other[0] == other[1] != one[0]
    assert channel_of(None) == b""


# -- versions

SPOKEN = ProtocolRange(2, 4, "0.2")


@pytest.mark.parametrize(
    ("here", "there", "with_each_other"),
    [
        (ProtocolRange(1, 1), ProtocolRange(1, 1), 1),
        (ProtocolRange(1, 2), ProtocolRange(1, 1), 1),
        (ProtocolRange(1, 3), ProtocolRange(2, 4), 3),
        (ProtocolRange(1, 1), ProtocolRange(2, 3), 0),
        (ProtocolRange(1, 2), ProtocolRange(2, 3), 2),
    ],
)
def test_two_members_speak_the_highest_version_that_both_know(
    here: ProtocolRange, there: ProtocolRange, with_each_other: int
) -> None:
    assert common_version(here, there) == common_version(there, here) == with_each_other


def test_an_opening_says_what_is_spoken_there() -> None:
    opening = opening_of("bb", bytes(NONCE_BYTES), SPOKEN)
    assert len(opening) == OPENING_BYTES
    assert protocols_of(opening) == SPOKEN
    long = protocols_of(opening_of("bb", bytes(NONCE_BYTES), ProtocolRange(1, 1, "ä" * 40)))
    assert (long.lowest, long.highest) == (1, 1)
    assert "\x1b" not in str(ProtocolRange(1, 1, "\x1b[2J"))


def test_nobody_in_between_makes_them_speak_an_older_version() -> None:
    opening = opening_of("bb", bytes(NONCE_BYTES), SPOKEN)
    said = request_of(["s"], opening, WHO, speaks=SPOKEN)
    assert proved_secrets(["s"], opening, said) == [True]
    welcome = welcome_of("s", opening, said)
    for change in ({"highest": 3}, {"lowest": 1}, {"build": "0.1"}):
        heard = msgspec.structs.replace(said, **change)
        assert proved_secrets(["s"], opening, heard) == [False]
        assert not is_welcome(welcome, ["s"], opening, heard)
    other = opening_of("bb", bytes(NONCE_BYTES), ProtocolRange(2, 3, "0.2"))
    assert proved_secrets(["s"], other, said) == [False]


def test_what_is_said_to_those_who_have_no_version_in_common() -> None:
    here, there = ProtocolRange(1, 1, "0.1"), ProtocolRange(2, 3, "0.5")
    why = protocol_mismatch(here, there)
    assert "there is Holdfast 0.5, which speaks the member protocol 2 to 3" in why
    assert "here Holdfast 0.1, which speaks the member protocol 1" in why
    assert "Start a version here that is closer to the one there" in why
    assert "Start a version there that is closer to the one here" in protocol_mismatch(there, here)


def of_another_build(speaks: ProtocolRange, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that are made from now on speak this."""
    monkeypatch.setattr(node, "MemberNetwork", partial(MemberNetwork, speaks=speaks))


def test_members_without_a_common_version_say_so_on_both_sides(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with cluster(1) as (first,):
            of_another_build(ProtocolRange(7, 9, "9.9"), monkeypatch)
            reason = r"and here Holdfast 9\.9, which speaks the member protocol 7 to 9"
            await cannot_join(Exception, reason, first.member_address)
            told = first.status().rejections
            assert isinstance(told, dict)
            assert told["members refused: incompatible protocol"] >= 1

    run(story())
    assert "there is Holdfast 9.9, which speaks the member protocol 7 to 9, and here" in caplog.text


def test_members_of_builds_that_overlap_speak_the_version_that_both_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with cluster(1) as (first,):
            of_another_build(ProtocolRange(1, 9, "9.9"), monkeypatch)
            async with member(first.member_address) as second:
                await second.wait_safe()
                assert second.status().protocol == MemberProtocol(1, 9, {first.uuid: 1})
                await second.map("m").put("k", "v")
                assert await first.map("m").get("k") == "v"
                assert [one.version for one in first.status().members] == [__version__, "9.9"]

    run(story())


def test_a_whisper_of_a_kind_that_only_newer_members_know_ends_nothing() -> None:
    """wire/C-2: who says more than this member knows is still heard when it says what this one does know."""

    async def story() -> None:
        async with cluster(2) as (first, second):
            connections = len(first._node._network.incoming)
            host, _, port = first.member_address.rpartition(":")
            second._node._network.send_datagram(
                Address(host, int(port)), msgspec.msgpack.encode([99, "from the future"])
            )
            for _ in range(100):
                doors_of_first = first.status().rejections
                assert isinstance(doors_of_first, dict)
                if "messages dropped: unknown kind" in doors_of_first:
                    break
                await asyncio.sleep(0.02)
            assert doors_of_first["messages dropped: unknown kind"] == 1
            assert len(first._node._network.incoming) == connections

    run(story())
