"""The blocking client against members that move, die and do not know, behind real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember

from holdfast import errors
from holdfast.client import blocking
from holdfast.client.blocking import Client, PutCount
from holdfast.client.connection import Broken
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.wire import own
from holdfast.wire.values import to_stored

PARTITIONS = 31


def text(word: str) -> bytes:
    raw = word.encode()
    return (-11).to_bytes(4, "big", signed=True) + len(raw).to_bytes(4, "big") + raw


KEYS = [text(f"key-{number}") for number in range(1000)]
VALUES = [text(f"value-{number}") for number in range(1000)]
ENTRIES = dict(zip(KEYS, VALUES, strict=True))


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(3, PARTITIONS) as running:
        yield running


@pytest.fixture
def client(cluster: MemoryCluster) -> Iterator[Client]:
    with Client(cluster.addresses(), timeout_s=5) as made:
        yield made


def everything(client: Client) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for partition in range(PARTITIONS):
        for page in client.scan("m", partition, rows_max=7):
            rows = dict(zip(*page.split(), strict=True))
            assert not found.keys() & rows.keys()
            found |= rows
    return found


def held(cluster: MemoryCluster) -> dict[bytes, bytes]:
    """What the owners really hold."""
    found: dict[bytes, bytes] = {}
    for partition in range(PARTITIONS):
        found |= cluster.owner(partition).held[partition].open("m").state.entries
    return found


# -- finding members


def test_the_first_address_is_asked(cluster: MemoryCluster) -> None:
    for member in cluster.members:
        with Client(f"127.0.0.1:{member.port}") as client:
            assert client.status().uuid == member.member_uuid


def test_addresses_that_do_not_answer_are_passed_over(cluster: MemoryCluster) -> None:
    with Client(f"127.0.0.1:1,{cluster.addresses()}") as client:
        assert client.partition_count == PARTITIONS
        assert len(client.table()) == PARTITIONS


def test_nobody_there_is_said_at_once_with_every_address() -> None:
    with Client("127.0.0.1:1,127.0.0.1:2") as client, pytest.raises(errors.NotReady) as raised:
        client.status()
    assert "127.0.0.1:1" in str(raised.value)
    assert "127.0.0.1:2" in str(raised.value)


def test_wrong_credentials_are_refused_at_once(cluster: MemoryCluster) -> None:
    for member in cluster.members:
        member.user = ("u", "right", None)
    with Client(cluster.addresses(), username="u", password="wrong") as client, pytest.raises(errors.Denied):
        client.get("m", KEYS[0])
    with Client(cluster.addresses(), username="u", password="right") as client:
        assert client.get("m", KEYS[0]) is None


def test_a_token_may_be_text(cluster: MemoryCluster) -> None:
    for member in cluster.members:
        member.user = (None, None, b"t")
    with Client(cluster.addresses(), token="t") as client:
        assert client.partition_count == PARTITIONS


def test_an_answer_of_another_build_is_an_error_that_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryMember, "status", lambda self: {"uuid": "a"})
    with pytest.raises(errors.Unsupported, match="another version of Holdfast"):
        client.status()


def test_somebody_else_at_the_address_is_told(cluster: MemoryCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with Client(f"127.0.0.1:{port}", timeout_s=0.2) as client, pytest.raises(errors.NotReady):
            client.status()


# -- single operations


def test_get_set_size_clear(client: Client) -> None:
    client.set("m", KEYS[0], VALUES[0])
    assert client.get("m", KEYS[0]) == VALUES[0]
    assert client.get("m", KEYS[1]) is None
    assert client.size("m") == 1
    assert client.clear("m") == 1
    assert client.size("m") == 0


def test_an_unknown_outcome_is_raised_and_a_refusal_too(cluster: MemoryCluster, client: Client) -> None:
    request = Request(Op.DELETE, "m", [client._partition(KEYS[0])], KEYS[0])
    for status, error in ((Status.UNKNOWN, errors.Unknown), (Status.TOO_LARGE, errors.TooLarge)):
        for member in cluster.members:
            member.answer_with = Outcome(status, detail="why")
        with pytest.raises(error, match="why"):
            client.execute(request)
    assert sum(len(member.requests) for member in cluster.members) == 2


def test_refusals_that_pass_are_tried_again_and_reads_that_nobody_knows(
    cluster: MemoryCluster, client: Client
) -> None:
    for status in (Status.MOVED, Status.NOT_READY, Status.CLOSING, Status.UNKNOWN):
        answers = [Outcome(status), Outcome(status), Outcome(Status.OK, b"vvvv")]
        for member in cluster.members:
            member.execute = lambda request, done, left=answers: done(left.pop(0))  # type: ignore[method-assign]
        assert client.get("m", KEYS[0]) == b"vvvv"


def test_a_read_that_nobody_answers_is_not_unknown(cluster: MemoryCluster) -> None:
    """It has changed nothing, so it may be repeated."""
    for member in cluster.members:
        member.answer_with = Outcome(Status.UNKNOWN, detail="why")
    with (
        Client(cluster.addresses(), timeout_s=0.1) as client,
        pytest.raises(errors.Unreachable, match="no answer: why"),
    ):
        client.get("m", KEYS[0])


def test_a_write_whose_answer_is_lost_is_unknown_and_not_sent_again(cluster: MemoryCluster) -> None:
    times: list[int] = []

    def cut(request: Request, done: object) -> None:
        times.append(1)
        for writer in list(cluster.members[0].writers):
            writer.transport.abort()

    cluster.members[0].execute = cut  # type: ignore[method-assign]
    with (
        Client(f"127.0.0.1:{cluster.members[0].port}") as client,
        pytest.raises(errors.Unknown, match="DELETE"),
    ):
        client.execute(Request(Op.DELETE, "m", [client._partition(KEYS[0])], KEYS[0]))
    assert len(times) == 1


# -- columns


class Remembering:
    """A client to which a cluster speaks that knows requests by their ids; its tries end as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, client: Client, *tries: Exception | None) -> None:
        self.ids: list[bytes] = []
        left = list(tries)
        client._remembers = True

        def attempt(request: Request) -> None:
            self.ids.append(request.id)
            failed = left.pop(0) if len(left) > 1 else left[0]
            if failed is not None:
                raise failed

        monkeypatch.setattr(client, "_attempt", attempt)


DELETE = Request(Op.DELETE, "m", [0], b"k")


def test_an_unknown_write_is_sent_again_with_the_same_id(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    world = Remembering(monkeypatch, client, errors.Unknown("lost"), errors.NotReady("soon"), None)
    client.execute(DELETE)
    client.execute(DELETE)
    first, second, third, another = world.ids
    assert first == second == third != another
    assert len(first) == 24


def test_a_refusal_after_an_unknown_outcome_leaves_it_unknown(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    Remembering(monkeypatch, client, errors.Unknown("lost"), errors.Passive("passive now"))
    with pytest.raises(errors.Unknown, match="lost; then: passive now"):
        client.execute(DELETE)
    Remembering(monkeypatch, client, errors.Passive("passive"))
    with pytest.raises(errors.Passive):
        client.execute(DELETE)


def test_who_wants_to_know_at_once_is_told(monkeypatch: pytest.MonkeyPatch, cluster: MemoryCluster) -> None:
    with Client(cluster.addresses(), retry_unknown=False) as client:
        world = Remembering(monkeypatch, client, errors.Unknown("lost"), None)
        with pytest.raises(errors.Unknown):
            client.execute(DELETE)
        assert len(world.ids) == 1


def test_what_is_put_is_scanned(client: Client) -> None:
    count = client.put_columns("m", KEYS, VALUES)
    assert (count.rows, count.rows_resent, len(count.partitions)) == (1000, 0, PARTITIONS)
    assert everything(client) == ENTRIES


def test_nothing_put_is_nothing_done(client: Client) -> None:
    assert client.put_columns("m", [], []).rows == 0


def test_entries_go_to_their_owners_and_are_not_forwarded(cluster: MemoryCluster, client: Client) -> None:
    client.put_columns("m", KEYS, VALUES)
    assert all(member.requests == [] for member in cluster.members)
    assert held(cluster) == ENTRIES


def test_large_batches_are_cut(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "PUT_ROWS_MAX", 100)
    assert client.put_columns("m", KEYS, VALUES).messages >= 10
    assert everything(client) == ENTRIES


def test_puts_follow_partitions_that_move_meanwhile(
    cluster: MemoryCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "PUT_ROWS_MAX", 50)

    def move(member: MemoryMember) -> None:
        cluster.move(cluster.seals % PARTITIONS)
        cluster.move((cluster.seals * 7) % PARTITIONS)

    cluster.after_seal = move
    count = client.put_columns("m", KEYS, VALUES)
    assert count.rows == 1000
    assert count.rows_resent > 0
    assert held(cluster) == ENTRIES


def test_puts_of_which_nobody_knows_are_sent_again(cluster: MemoryCluster, client: Client) -> None:
    cluster.unknown_seals = {1, 2}
    count = client.put_columns("m", KEYS, VALUES)
    assert count.rows == 1000
    assert 0 < count.rows_resent < 1000
    assert held(cluster) == ENTRIES


def test_puts_survive_the_loss_of_a_member(cluster: MemoryCluster, client: Client) -> None:
    def kill(member: MemoryMember) -> None:
        cluster.after_seal = lambda member: None
        cluster.loop.call_soon(cluster.kill, member)

    cluster.after_seal = kill
    assert client.put_columns("m", KEYS, VALUES).rows == 1000
    assert held(cluster) == ENTRIES


def test_a_failed_put_says_how_far_it_got(cluster: MemoryCluster) -> None:
    lost = cluster.owner(3)
    cluster.do(lambda: lost.lane.serving.__setitem__(3, None))
    count = PutCount()
    with (
        Client(cluster.addresses(), timeout_s=0.3) as client,
        pytest.raises(errors.NotReady, match="partition 3 moved"),
    ):
        client.put_columns("m", KEYS, VALUES, count=count)
    assert count.partitions == set(range(PARTITIONS)) - {3}
    assert count.rows == len(held(cluster))


def test_a_refused_put_is_not_tried_again(cluster: MemoryCluster, client: Client) -> None:
    with pytest.raises(errors.ProtocolError, match="1024 characters"):
        client.put_columns("m" * 1025, KEYS, VALUES)


def test_a_scan_follows_a_move(cluster: MemoryCluster, client: Client) -> None:
    client.put_columns("m", KEYS, VALUES)
    cluster.do(lambda: [cluster.move(partition) for partition in range(0, PARTITIONS, 2)])
    assert everything(client) == ENTRIES


def test_a_scan_begins_anew_when_its_member_dies(
    cluster: MemoryCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put_columns("m", KEYS, VALUES)
    owner = cluster.owner(0)
    ask = blocking.Connection.ask
    asked: list[object] = []

    def ask_and_kill(self: blocking.Connection, question: own.Question, kind: type) -> own.Answer:
        if isinstance(question, own.NextPage) and owner.alive:
            asked.append(question)
            cluster.do(lambda: cluster.kill(owner))
        return ask(self, question, kind)

    monkeypatch.setattr(blocking.Connection, "ask", ask_and_kill)
    pages = client.scan("m", 0, rows_max=5)
    found = [key for page in pages for key in page.split()[0]]
    assert asked
    assert len(found) == len(set(found))
    assert set(found) == cluster.owner(0).held[0].open("m").state.entries.keys()


def test_a_partition_without_an_owner_is_waited_for_and_then_named(cluster: MemoryCluster) -> None:
    cluster.do(lambda: cluster.rows.__setitem__(5, [None, None]))
    with (
        Client(cluster.addresses(), timeout_s=0.2) as client,
        pytest.raises(errors.NotReady, match="partition 5"),
    ):
        client.scan("m", 5)


def test_a_connection_is_to_the_member_that_is_named(cluster: MemoryCluster, client: Client) -> None:
    for member in cluster.members:
        assert client.to(member.member_uuid).hello.member == member.member_uuid
    with pytest.raises(errors.NotReady, match="no member"):
        client.to("nobody")


def test_another_process_at_a_members_address_is_not_mistaken_for_it(
    cluster: MemoryCluster, client: Client
) -> None:
    first, second = cluster.members[:2]
    client.table()
    cluster.do(lambda: setattr(first, "port", second.port))
    client.table()
    with pytest.raises(errors.NotReady, match="now, not"):
        client.to(first.member_uuid)


def test_a_cluster_that_began_anew_is_refused(cluster: MemoryCluster, client: Client) -> None:
    client.table()
    cluster.members[1].cluster_id = "another"
    with pytest.raises(errors.Refused, match="another cluster"):
        client.put_columns("m", KEYS, VALUES)


def test_a_broken_connection_is_said_to_be(cluster: MemoryCluster, client: Client) -> None:
    client.table()
    dead = cluster.members[2]
    cluster.do(lambda: cluster.kill(dead))
    with pytest.raises((Broken, errors.NotReady)):
        client.to(dead.member_uuid)


# -- more of a scan and of a put


def test_a_scan_of_some_keys_fields_and_rows(cluster: MemoryCluster, client: Client) -> None:
    documents = [to_stored({"a": number, "b": "text"}) for number in range(len(KEYS))]
    client.put_columns("m", KEYS, documents)
    partition = partition_of(KEYS[0], 0, PARTITIONS)
    mine = [key for key in KEYS if partition_of(key, 0, PARTITIONS) == partition]
    (page,) = client.scan("m", partition, fields=["a"], keys=[KEYS[0]])
    assert page.split() == ([KEYS[0]], [to_stored({"a": 0})])
    (page,) = client.scan("m", partition, fields=[])
    assert page.split() == (mine, [b""] * len(mine))
    assert sum(page.rows for page in client.scan("m", partition, limit=5, rows_max=2)) == 5


def test_rows_are_put_removed_and_added_each_with_its_own_time(
    cluster: MemoryCluster, client: Client
) -> None:
    client.put_columns("m", KEYS[:300], VALUES[:300])
    kinds = bytes([own.PutKind.REMOVE] * 100 + [own.PutKind.ADD] * 300)
    ttls_ms = list(range(1, 401))
    cluster.unknown_seals = {cluster.seals + 2}
    count = client.put_columns("m", KEYS[:400], VALUES[1:401], kinds=kinds, ttls_ms=ttls_ms)
    assert (count.rows, count.kept) == (400, 200), "those that were there, with another value"
    assert count.rows_resent
    found = held(cluster)
    assert found == {
        key: VALUES[number + (number >= 300)] for number, key in enumerate(KEYS[:400]) if number >= 100
    }
    for number in range(300, 400):
        key = KEYS[number]
        partition = partition_of(key, 0, PARTITIONS)
        assert cluster.owner(partition).held[partition].maps["m"].state.expiries[key].ttl_ms == number + 1


def test_keys_with_hash_words_go_where_these_say(cluster: MemoryCluster, client: Client) -> None:
    words = [number % 5 for number in range(100)]
    client.put_columns("m", KEYS[:100], VALUES[:100], key_hashes=words, max_idles_ms=[7] * 100)
    for number, word in enumerate(words):
        partition = word or partition_of(KEYS[number], 0, PARTITIONS)
        copy = cluster.owner(partition).held[partition].maps["m"]
        assert copy.state.entries[KEYS[number]] == VALUES[number]
        assert copy.state.hashes.get(KEYS[number], 0) == word
        assert copy.state.expiries[KEYS[number]].max_idle_ms == 7


def test_columns_of_different_lengths_are_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="one value for each key"):
        client.put_columns("m", KEYS[:2], VALUES[:2], ttls_ms=[1])
    with pytest.raises(ValueError, match="one value for each key"):
        client.put_columns("m", KEYS[:2], VALUES[:1])
