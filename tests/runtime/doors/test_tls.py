"""TLS at both doors: real members over real sockets, in processes of their own (uvloop) and in this one (asyncio)."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop
from click.testing import CliRunner
from hazelcast import HazelcastClient
from tests.runtime.certificates import HOST, Authority, Shown
from tests.runtime.in_process.test_embedded import cannot_join, cluster, member, run

from holdfast import aio
from holdfast.cli.main import holdfast as command
from holdfast.client.blocking import Client
from holdfast.config import TlsSettings
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.operations import Op, Request
from holdfast.errors import ConfigError, Denied, HoldfastError, NotReady, ProtocolError, Refused
from holdfast.runtime.doors import tls_records
from holdfast.runtime.doors.tls import MemberTls
from holdfast.wire import doors, own
from holdfast_lab.processes.local_cluster import LocalCluster

KEY = b"a key of the map"


@dataclass
class Keys:
    """What tests show and trust."""

    ours: Authority
    other: Authority
    member: Shown
    client: Shown
    stranger: Shown


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    where = tmp_path_factory.mktemp("keys")
    ours, other = Authority(where, "ours"), Authority(where, "other")
    return Keys(ours, other, ours.sign(), ours.sign("a.client"), other.sign(HOST, "stranger"))


def settings(keys: Keys, **more: object) -> dict[str, object]:
    """Of a member, for `member`."""
    own = {
        "certificate": keys.member.certificate,
        "key": keys.member.key,
        "ca": keys.ours.file,
        **more,
    }
    return {f"tls__{name}": value for name, value in own.items()}


@pytest.fixture(scope="module", params=["poll", "loop"])
def grid(keys: Keys, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Members whose clients' sockets are served in one of both ways."""
    if request.param == "poll" and not hasattr(select, "epoll"):
        pytest.skip("this system has no epoll")
    lines = [f"{name.removeprefix('tls__')} = {json.dumps(value)}" for name, value in settings(keys).items()]
    config = "\n".join(
        [
            f'[member]\nsockets = "{request.param}"',
            *("[tls]", *lines, 'client_certificates = "optional"'),
            "[limits]\nunauthenticated_connections = 8\nauth_timeout_ms = 60000",
        ]
    )
    with LocalCluster(2, config, tls=ClientTls(keys.ours.file)) as running:
        running.wait_settled()
        yield running


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def secured(address: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connect(address), server_hostname=HOST)


def rest(sock: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    found = b""
    with suppress(ConnectionError):
        while more := sock.recv(4096):
            found += more
    return found


# -- who may come in


def test_own_client(grid: LocalCluster, keys: Keys) -> None:
    with Client(grid.client_addresses(), tls=ClientTls(keys.ours.file)) as client:
        client.set("m", KEY, b"v" * 100_000)
        assert client.get("m", KEY) == b"v" * 100_000
    mutual = ClientTls(keys.ours.file, keys.client.certificate, keys.client.key)
    with Client(grid.client_addresses(), tls=mutual) as client:
        assert client.get("m", KEY) == b"v" * 100_000


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_asyncio_client(
    grid: LocalCluster, keys: Keys, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def story() -> None:
        mutual = ClientTls(keys.ours.file, keys.client.certificate, keys.client.key)
        async with aio.Client(grid.client_addresses(), tls=mutual) as client:
            names = client.map("aio")
            await names.put_all(dict.fromkeys(range(1000), "x" * 1000))
            assert await names.size() == 1000
        for wrong, why in (
            (ClientTls(keys.other.file), "its certificate is not trusted"),
            (
                ClientTls(keys.ours.file, keys.stranger.certificate, keys.stranger.key),
                "does not trust|ended|lost|closed",
            ),
        ):
            with pytest.raises(Refused, match=why):
                await aio.Client(grid.client_addresses(), tls=wrong, connect_timeout_s=1).connect()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story())


def test_blocking_client(grid: LocalCluster, keys: Keys) -> None:
    context = ClientTls(keys.ours.file).context()
    with aio.BlockingClient(grid.client_addresses(), tls=context) as client:
        names = client.map("blocking")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: names.put(number, "x" * 50_000), range(40)))
            assert set(threads.map(names.get, range(40))) == {"x" * 50_000}
        assert len(names.get_all(range(40))) == 40


# The client names the versions that it does not speak, which Python calls deprecated.
@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.interop
@pytest.mark.filterwarnings("ignore:ssl.:DeprecationWarning")
def test_official_python_client(grid: LocalCluster, keys: Keys, mutual: bool) -> None:
    shown = {"ssl_certfile": keys.client.certificate, "ssl_keyfile": keys.client.key} if mutual else {}
    client = HazelcastClient(
        cluster_members=grid.client_addresses(),
        ssl_enabled=True,
        cluster_connect_timeout=120,
        ssl_cafile=keys.ours.file,
        ssl_check_hostname=True,
        **shown,
    )
    try:
        names = client.get_map("names").blocking()
        names.put_all({number: "x" * number for number in range(300)})
        assert names.get(299) == "x" * 299
    finally:
        client.shutdown()


def test_status_on_the_command_line(grid: LocalCluster, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    address = grid.alive[0].client_address
    asked = CliRunner().invoke(command, ["status", address, "--json", "--tls-ca", keys.ours.file])
    assert asked.exit_code == 0, asked.output
    shown = json.loads(asked.stdout)
    assert len(shown["members"]) == 2
    monkeypatch.setenv("HOLDFAST_TLS_CA", keys.ours.file)
    assert CliRunner().invoke(command, ["status", address]).exit_code == 0


def test_a_client_without_tls_is_told_so(grid: LocalCluster) -> None:
    with pytest.raises(ProtocolError, match="uses TLS, and this client does not"):
        Client(grid.client_addresses(), timeout_s=60).status()


def test_a_client_trusts_only_its_authorities(grid: LocalCluster, keys: Keys) -> None:
    with pytest.raises(Denied, match="its certificate is not trusted"):
        Client(grid.client_addresses(), timeout_s=60, tls=ClientTls(keys.other.file)).status()


def test_a_certificate_names_its_host(grid: LocalCluster, keys: Keys) -> None:
    address = grid.alive[0].client_address.replace(HOST, "localhost")
    with pytest.raises(Denied, match="its certificate is not trusted: Hostname mismatch"):
        Client(address, timeout_s=60, tls=ClientTls(keys.ours.file)).status()
    with Client(address, timeout_s=60, tls=ClientTls(keys.ours.file, verify_host=False)) as client:
        assert client.status().safe


def test_a_certificate_that_is_shown_is_good(grid: LocalCluster, keys: Keys) -> None:
    wrong = ClientTls(keys.ours.file, keys.stranger.certificate, keys.stranger.key)
    with pytest.raises(Denied, match="does not trust the authority that signed the presented certificate"):
        Client(grid.client_addresses(), timeout_s=60, tls=wrong).status()


def tls_1_2(keys: Keys, ciphers: str = "DEFAULT") -> ssl.SSLContext:
    """A client that offers TLS 1.2 alone, as the Python client does by default."""
    context = ssl.create_default_context(cafile=keys.ours.file)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    return context


def handshake(address: str, context: ssl.SSLContext) -> str | None:
    with connect(address) as plain, context.wrap_socket(plain, server_hostname=HOST) as secured:
        return secured.version()


def test_clients_may_use_tls_1_2_by_default(grid: LocalCluster, keys: Keys) -> None:
    assert handshake(grid.alive[0].client_address, tls_1_2(keys)) == "TLSv1.2"


@pytest.mark.parametrize("ciphers", ["AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA"])
def test_ciphers_without_forward_secrecy_or_authentication_are_refused(
    grid: LocalCluster, keys: Keys, ciphers: str
) -> None:
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        handshake(grid.alive[0].client_address, tls_1_2(keys, ciphers))


def test_members_refuse_tls_1_2(grid: LocalCluster, keys: Keys) -> None:
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        handshake(grid.alive[0].member_address, tls_1_2(keys))


def test_clients_are_refused_tls_1_2_by_setting(keys: Keys) -> None:
    chosen = settings(keys, minimum_version="1.3")

    async def story() -> None:
        async with member(**chosen) as only:
            with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                await asyncio.to_thread(handshake, only.client_address, tls_1_2(keys))

    run(story())


def test_tls_1_2_with_required_certificates(keys: Keys) -> None:
    async def story() -> None:
        chosen = settings(keys, client_certificates="required")
        async with cluster(2, **chosen) as (first, _):
            context = ssl.create_default_context(cafile=keys.ours.file)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(keys.client.certificate, keys.client.key)
            host, _, port = first.client_address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
            writer.close()

            def without() -> None:
                with pytest.raises(Denied, match="it requires a certificate, and got none"):
                    Client(first.client_address, timeout_s=60, tls=ClientTls(keys.ours.file)).status()

            await asyncio.to_thread(without)

    run(story())


# -- strangers


@pytest.mark.parametrize("door", ["client_address", "member_address"])
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", doors.NOT_HTTP),
        (b"CP2" + bytes(30), doors.TLS_ALERT),
        (b"HF1", doors.TLS_ALERT),
        (b"\x00", doors.TLS_ALERT),
    ],
    ids=["HTTP", "Hazelcast", "own", "something"],
)
def test_who_speaks_no_tls_is_told_so(grid: LocalCluster, door: str, said: bytes, answer: bytes) -> None:
    with connect(getattr(grid.alive[0], door)) as plain:
        plain.sendall(said)
        assert rest(plain) == answer
    assert "without TLS" in grid.alive[0].log.read_text()


def test_whatever_comes_in_a_handshake_ends_it_alone(grid: LocalCluster, keys: Keys) -> None:
    said = [
        b"\x16\x03\x01\xff\xff" + b"\xff" * 20_000,
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        b"\x16\x03\x01\x00\x00" * 100,
        b"\x16",
    ]
    for one_member in grid.alive:
        for address in (one_member.client_address, one_member.member_address):
            for one in said:
                with connect(address) as plain:
                    with suppress(OSError):  # The member may have closed already.
                        plain.sendall(one)
                        plain.shutdown(socket.SHUT_WR)
                    rest(plain)
    with Client(grid.client_addresses(), tls=ClientTls(keys.ours.file)) as client:
        assert client.status().safe
    assert len(grid.alive) == 2


def test_records_that_are_none_end_their_connection_alone(grid: LocalCluster, keys: Keys) -> None:
    context = ssl.create_default_context(cafile=keys.ours.file)
    with secured(grid.alive[0].client_address, context) as there:
        there.sendall(b"CP2")
        raw = socket.socket(fileno=there.detach())
        raw.settimeout(120)
        with raw:
            raw.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            rest(raw)
    with Client(grid.client_addresses(), tls=ClientTls(keys.ours.file)) as client:
        assert client.status().safe


def test_small_records_are_no_harm_and_hollow_ones_end_their_connection(
    grid: LocalCluster, keys: Keys
) -> None:
    context = ssl.create_default_context(cafile=keys.ours.file)
    address = grid.alive[0].client_address
    hello = own.PREAMBLE + own.frame(own.Hello(1, own.VERSION, "dev", "", ""))
    with secured(address, context) as there:
        for at in range(len(hello)):
            there.sendall(hello[at : at + 1])
        assert there.recv(1)  # It is let in.
    with secured(address, context) as there:
        there.sendall(
            hello + own.frame(own.Execute(2, Request(Op.SET, "m", [0, b"k", b"v" * 1_000_000])))[:5000]
        )
        for _ in range(1_000_000):
            try:
                there.sendall(b"v")
            except OSError:
                break
        else:
            pytest.fail("a million records of one byte were taken")
    log = grid.alive[0].log.read_text()
    assert log.count("its records are nearly empty") == 1


def test_a_request_may_come_with_the_end_of_the_handshake(grid: LocalCluster, keys: Keys) -> None:
    """Both arrive in one segment: the request is not forgotten in the handshake."""
    came, leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=keys.ours.file).wrap_bio(came, leaves, server_hostname=HOST)
    with connect(grid.alive[0].client_address) as there:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                there.sendall(leaves.read())
                came.write(there.recv(1 << 16))
        client.write(own.PREAMBLE + own.frame(own.Hello(1, own.VERSION, "dev", "", "")))
        there.sendall(leaves.read())  # the last message of the handshake, and the request
        answer = b""
        while not answer:
            came.write(there.recv(1 << 16))
            with suppress(ssl.SSLWantReadError):
                answer = client.read()
    assert answer


def test_a_client_that_says_goodbye_gets_its_answers_first(grid: LocalCluster, keys: Keys) -> None:
    context = ssl.create_default_context(cafile=keys.ours.file)
    with secured(grid.alive[0].client_address, context) as there:
        there.sendall(own.PREAMBLE + own.frame(own.Hello(1, own.VERSION, "dev", "", "")))
        answer = there.recv(4096)
        plain = there.unwrap()  # it sends close_notify, and waits for the member's
        assert answer
        assert rest(plain) == b""


def test_large_values_and_many_requests_at_once(grid: LocalCluster, keys: Keys) -> None:
    """More than a read, a record and a socket's buffer hold."""
    value = os.urandom(3_000_000)

    async def run() -> None:
        async with aio.Client(grid.client_addresses(), tls=ClientTls(keys.ours.file)) as client:
            entries = client.map("large")
            await asyncio.gather(*(entries.set(f"l{number}", value) for number in range(6)))
            await asyncio.gather(*(entries.set(f"s{number}", number) for number in range(5000)))
            found = await asyncio.gather(*(entries.get(f"l{number}") for number in range(6)))
            assert found == [value] * 6
            assert await asyncio.gather(*(entries.get(f"s{number}") for number in range(5000))) == [
                *range(5000)
            ]

    asyncio.run(run())


def test_a_member_that_ends_leaves_no_handshake_behind(keys: Keys) -> None:
    """Connections whose handshake has only begun are closed with the port."""

    async def story() -> None:
        async with member(**settings(keys), limits__auth_timeout_ms=60_000) as one:
            port = int(one.client_address.rpartition(":")[2])
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"\x16\x03\x01")
            await writer.drain()
            await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()

    run(story())


def gather(client: socket.socket, address: str) -> None:
    """Pass on both messages of the client's handshake, and what follows in one piece: the records arrive faster than
    the member serves them one by one, however slow the client is. Returns when the member has closed.
    """
    with (
        client,
        connect(address) as member,
        member.makefile("rb", 0) as told,
        client.makefile("wb", 0) as back,
        ThreadPoolExecutor(1) as pool,
    ):
        answers = pool.submit(shutil.copyfileobj, told, back)
        for _ in range(2):
            member.sendall(client.recv(65536))
        held = b""
        while len(held) < 2 * tls_records.HOLLOW_BYTES:
            held += client.recv(65536)
        with suppress(ConnectionError):
            member.sendall(held)
            answers.result()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes new keys on demand, and is not there")
def test_new_keys_again_and_again_end_their_connection(grid: LocalCluster, keys: Keys) -> None:
    one = grid.alive[1]
    with socket.create_server((HOST, 0)) as between, ThreadPoolExecutor(1) as pool:
        gathered = pool.submit(lambda: gather(between.accept()[0], one.client_address))
        flood = subprocess.Popen(
            [
                "openssl",
                "s_client",
                "-connect",
                f"{HOST}:{between.getsockname()[1]}",
                "-CAfile",
                keys.ours.file,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert flood.stdin is not None
        with suppress(BrokenPipeError):
            while True:
                flood.stdin.write(b"k\n")
        gathered.result()
        flood.wait()
        flood.stdin.close()
    assert "its records are nearly empty" in one.log.read_text()
    with Client(one.client_address, tls=ClientTls(keys.ours.file)) as client:
        assert client.status().safe


def test_handshakes_have_few_places(grid: LocalCluster, keys: Keys) -> None:
    """Of which the oldest is given to who comes next: so nobody is kept out."""
    address = grid.alive[0].client_address
    waiting = [connect(address) for _ in range(12)]
    for one in waiting:
        one.sendall(b"\x16")
    with Client(address, tls=ClientTls(keys.ours.file)) as client:
        assert client.status().safe
        counts = client.status().rejections
    assert counts["connections closed: too many in the TLS handshake"] >= 4
    waiting[0].settimeout(120)
    assert rest(waiting[0]) == b""
    for one in waiting:
        one.close()


def test_a_handshake_has_an_end(keys: Keys) -> None:
    async def story() -> None:
        async with cluster(1, limits__auth_timeout_ms=300, **settings(keys)) as (only,):
            host, _, port = only.client_address.rpartition(":")
            for said in (b"", b"\x16\x03\x01\x01\x00"):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(said)
                assert await asyncio.wait_for(reader.read(), 120) == (doors.TLS_ALERT if not said else b"")
                writer.close()

    run(story())


def test_only_members_come_to_the_door_of_members(grid: LocalCluster, keys: Keys) -> None:
    address = grid.alive[0].member_address
    for shown in (None, keys.stranger):
        context = ssl.create_default_context(cafile=keys.ours.file)
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        # The client has ended its handshake when it hears of that.
        with secured(address, context) as there, pytest.raises(ssl.SSLError):
            there.recv(1)
    context = ssl.create_default_context(cafile=keys.ours.file)
    context.load_cert_chain(keys.member.certificate, keys.member.key)
    with secured(address, context) as there:
        assert there.recv(4) == doors.MEMBER


def test_a_client_with_tls_at_a_door_without(keys: Keys) -> None:
    async def story() -> None:
        async with cluster(1) as (only,):

            def come() -> None:
                with pytest.raises(NotReady, match="closed the connection in the TLS handshake"):
                    Client(only.client_address, timeout_s=60, tls=ClientTls(keys.ours.file)).status()

            await asyncio.to_thread(come)

    run(story())


def test_members_with_and_without_tls_tell_each_other(keys: Keys) -> None:
    async def story() -> None:
        async with cluster(1, **settings(keys)) as (secured,):
            reason = "a TLS server, and this member speaks no TLS"
            await cannot_join(TimeoutError, reason, secured.member_address)
        async with cluster(1) as (plain,):
            reason = "no TLS with the one there: it does not use TLS"
            await cannot_join(TimeoutError, reason, plain.member_address, **settings(keys))

    run(story())


def test_members_of_another_authority_do_not_join(keys: Keys) -> None:
    async def story() -> None:
        async with cluster(1, **settings(keys)) as (first,):
            other = Keys(keys.other, keys.ours, keys.stranger, keys.client, keys.member)
            reason = "its certificate is not trusted"
            await cannot_join(TimeoutError, reason, first.member_address, **settings(other))
            assert len(first.status().members) == 1

    run(story())


# -- files


def test_a_changed_certificate_is_used_without_a_restart(keys: Keys, tmp_path: Path) -> None:
    files = Shown(str(tmp_path / "member.pem"), str(tmp_path / "member.key"))

    def put(shown: Shown) -> None:
        shutil.copy(shown.key, files.key)
        shutil.copy(shown.certificate, files.certificate)

    put(keys.member)

    def spoil() -> None:
        Path(files.certificate).write_text("no certificate")

    chosen = settings(keys, certificate=files.certificate, key=files.key, reload_s=1)
    context = ssl.create_default_context(cafile=keys.ours.file)

    async def story() -> None:
        async with cluster(2, **chosen) as (first, second):
            host, _, port = first.client_address.rpartition(":")

            async def serial() -> str:
                _, writer = await asyncio.open_connection(host, int(port), ssl=context)
                found = str(writer.get_extra_info("peercert")["serialNumber"])
                writer.close()
                return found

            async def until_loaded(times: int, *, trouble: bool) -> None:
                while True:
                    tls = first.status().tls
                    if tls and tls.loaded == times and bool(tls.error) == trouble:
                        return
                    await asyncio.sleep(0.1)

            before = await serial()
            spoil()
            await until_loaded(1, trouble=True)
            assert await serial() == before
            put(keys.ours.sign(HOST, "renewed"))
            await until_loaded(2, trouble=False)
            assert await serial() != before
            # What was open stays open.
            await first.map("m").put("k", "v")
            assert await second.map("m").get("k") == "v"

    run(story())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"certificate": "/nowhere.pem"}, "tls.certificate, /nowhere.pem.*No such file"),
        ({"ca": "/nowhere.pem"}, "tls.ca, /nowhere.pem, cannot be used: No such file"),
        ({"ca": "other"}, "tls.certificate, .*, is not good for members, which trust tls.ca: unable to get"),
        ({"certificate": "expired"}, "is not good for members, which trust tls.ca: certificate has expired"),
        ({"key": "stranger"}, "cannot be used: key values mismatch"),
    ],
    ids=["no certificate", "no authority", "another authority", "expired", "another key"],
)
def test_what_cannot_be_used_is_found_at_the_start(keys: Keys, change: dict[str, str], why: str) -> None:
    expired = keys.ours.sign(HOST, "expired", expired=True)
    files = {
        "other": keys.other.file,
        "expired": expired.certificate,
        "stranger": keys.stranger.key,
    }
    own = {"certificate": keys.member.certificate, "key": keys.member.key, "ca": keys.ours.file}
    if "expired" in change.values():
        own["key"] = expired.key
    own |= {name: files.get(value, value) for name, value in change.items()}
    with pytest.raises(ConfigError, match=why):
        MemberTls(TlsSettings(**own))  # type: ignore[arg-type]


def test_a_key_with_a_password(keys: Keys, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    read = serialization.load_pem_private_key(Path(keys.member.key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        read.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"geheim"),
        )
    )
    own = {"certificate": keys.member.certificate, "key": str(locked), "ca": keys.ours.file}
    assert MemberTls(TlsSettings(**own, key_password="geheim")).status().member_certificate_ends
    for password in ("", "falsch"):
        with pytest.raises(ConfigError, match="cannot be used") as told:
            MemberTls(TlsSettings(**own, key_password=password))
        assert "falsch" not in str(told.value)
    assert "geheim" not in repr(TlsSettings(**own, key_password="geheim"))


def test_wrong_files_of_a_client(keys: Keys) -> None:
    for tls in (ClientTls("/nowhere"), ClientTls(keys.ours.file, key="k"), ClientTls(None, keys.client.key)):
        with pytest.raises(HoldfastError):
            tls.context()


def test_silence_at_a_tls_door_is_no_reason_to_wait(grid: LocalCluster) -> None:
    """Whoever waits for the member to begin, as a member without TLS does, is told what is spoken."""
    with connect(grid.alive[0].member_address) as plain:
        assert rest(plain) == doors.TLS_ALERT
