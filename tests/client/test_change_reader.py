"""Change streams as a client reads them, from members that hold what a test has written, move, die and forget."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from tests.server.memory_cluster import MemoryCluster, MemoryMember

from holdfast.client import change_reader as client_changes
from holdfast.client.blocking import Client
from holdfast.client.change_reader import heads, read_changes
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.core.store.replica import MapReplica
from holdfast.errors import ChangesGone, NotReady, Unsupported
from holdfast.wire import own
from holdfast.wire.values import to_stored

PARTITIONS = 5
PARTITION = 2
KEYS = [key for key in map(to_stored, range(400)) if partition_of(key, 0, PARTITIONS) == PARTITION][:20]
Change = tuple[int, own.ChangeKind, bytes, bytes, bytes]


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(4, PARTITIONS, changes_bytes=1 << 20) as running:
        yield running


@pytest.fixture
def client(cluster: MemoryCluster) -> Iterator[Client]:
    with Client(cluster.addresses(), timeout_s=2) as found:
        yield found


def put(client: Client, word: str, keys: list[bytes] = KEYS) -> None:
    client.put_columns("m", keys, [word.encode()] * len(keys))


def head_of(client: Client) -> own.Head:
    return heads(client, "m", [PARTITION])[PARTITION]


def changes_in(answers: list[own.Changes]) -> list[Change]:
    found: list[Change] = []
    for answer in answers:
        olds = own.ColumnBatch(
            len(answer.counters), answer.old_offsets, answer.olds, answer.old_offsets, answer.olds
        )
        rows = zip(
            answer.counters,
            answer.kinds,
            *answer.columns.split(),
            olds.split()[0],
            answer.times_ms,
            strict=True,
        )
        for counter, kind, key, value, old, time_ms in rows:
            assert time_ms == 1_700_000_000_000
            found.append((counter, own.ChangeKind(kind), key, value, old))
    return found


def lineage_copy(member: MemoryMember) -> MapReplica:
    return member.held[PARTITION].maps["m"]


def test_inserts_updates_and_removes_are_told_in_order(client: Client) -> None:
    assert head_of(client) == own.Head(PARTITION, 0, 0, 0, [])
    put(client, "one")
    put(client, "two", KEYS[:1])
    client.execute(Request(Op.DELETE, "m", [PARTITION], KEYS[1]))
    head = head_of(client)
    assert (head.counter, head.term, head.since, head.lineage) == (22, 1, 0, [(1, 0)])
    answers = read_changes(client, "m", PARTITION, 0, 0, head.counter, upto_term=head.term)
    assert [answer.upto for answer in answers] == [22]
    assert changes_in(answers) == [
        *[(at + 1, own.ChangeKind.INSERT, key, b"one", b"") for at, key in enumerate(KEYS)],
        (21, own.ChangeKind.UPDATE, KEYS[0], b"two", b"one"),
        (22, own.ChangeKind.REMOVE, KEYS[1], b"", b"one"),
    ]
    part = read_changes(client, "m", PARTITION, 5, 1, 8)
    assert changes_in(part) == changes_in(answers)[5:8]
    assert read_changes(client, "m", PARTITION, 22, 1, 22) == []


def test_small_answers_come_one_after_the_other(client: Client) -> None:
    put(client, "one")
    whole = changes_in(read_changes(client, "m", PARTITION, 0, 0, 20))
    answers = read_changes(client, "m", PARTITION, 0, 0, 20, bytes_max=500)
    assert [answer.upto for answer in answers] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert changes_in(answers) == whole


def test_heads_follow_a_partition_that_moves(cluster: MemoryCluster, client: Client) -> None:
    put(client, "one")
    before = heads(client, "m", range(PARTITIONS))
    assert sorted(before) == list(range(PARTITIONS))
    cluster.do(lambda: cluster.move(PARTITION))
    assert head_of(client).counter == 20
    put(client, "two")
    head = head_of(client)
    assert (head.lineage, head.term_at(20), head.term_at(21), head.term_at(41)) == (
        [(1, 0), (2, 20)],
        1,
        2,
        0,
    )
    assert len(changes_in(read_changes(client, "m", PARTITION, 10, 1, 40, upto_term=2))) == 30


@pytest.mark.rule("streams/G-2")
def test_another_member_tells_when_the_primary_has_forgotten(cluster: MemoryCluster, client: Client) -> None:
    put(client, "one")
    held = lineage_copy(cluster.owner(PARTITION))

    def forget() -> None:
        held.tail = None

    cluster.do(forget)
    assert head_of(client).since == 20
    assert len(changes_in(read_changes(client, "m", PARTITION, 0, 0, 20, upto_term=1))) == 20


def test_another_member_tells_when_the_primary_has_died(cluster: MemoryCluster, client: Client) -> None:
    put(client, "one")
    client.table()
    cluster.do(lambda: cluster.kill(cluster.owner(PARTITION)))
    assert len(changes_in(read_changes(client, "m", PARTITION, 0, 0, 20, upto_term=1))) == 20


def test_what_nobody_remembers_is_gone_and_says_so(cluster: MemoryCluster, client: Client) -> None:
    put(client, "one")
    copies = [lineage_copy(member) for member in cluster.members if PARTITION in member.held]

    def forget() -> None:
        for held in copies:
            held.tail = None

    cluster.do(forget)
    put(client, "two")
    with pytest.raises(
        ChangesGone, match=r"'m', partition 2: the changes after update 5 up to update 40 are gone"
    ) as gone:
        read_changes(client, "m", PARTITION, 5, 1, 40, upto_term=1)
    assert "remembered here from update 21 on" in gone.value.why
    copied = pickle.loads(pickle.dumps(gone.value))
    assert (copied.partition, copied.after, copied.upto, str(copied)) == (PARTITION, 5, 40, str(gone.value))
    assert len(changes_in(read_changes(client, "m", PARTITION, 20, 1, 40, upto_term=1))) == 20


@pytest.mark.parametrize("named", [True, False])
def test_a_reader_of_another_history_is_refused(client: Client, named: bool) -> None:
    put(client, "one")
    with pytest.raises(ChangesGone, match=r"not of the history that is held here"):
        read_changes(client, "m", PARTITION, 5, 7, 20, upto_term=1 if named else 0)
    assert not head_of(client).follows(5, 7)
    assert head_of(client).follows(5, 1)
    assert head_of(client).follows(0, 0)


def test_a_copy_that_has_not_come_so_far_does_not_answer(cluster: MemoryCluster, client: Client) -> None:
    put(client, "one")
    with pytest.raises(ChangesGone, match="update 20 of term 9 is not held here"):
        read_changes(client, "m", PARTITION, 5, 1, 20, upto_term=9)


@pytest.mark.parametrize(
    ("after", "upto", "upto_term"), [(20, 20, 0), (20, 20, 9), (20, 3, 9), (20, 3, 0), (3, 3, 0)]
)
def test_who_has_read_what_is_gone_hears_that_also_when_nothing_is_new(
    client: Client, after: int, upto: int, upto_term: int
) -> None:
    """The cluster has accepted a loss: it goes on with another history, which may be shorter."""
    put(client, "one", KEYS[:3])
    assert not head_of(client).follows(after, 9)
    with pytest.raises(
        ChangesGone, match=f"update {after} of term 8 is not of the history that leads to update 3"
    ):
        read_changes(client, "m", PARTITION, after, 8, upto, upto_term=upto_term)


def test_nothing_new_is_no_loss(cluster: MemoryCluster, client: Client) -> None:
    put(client, "one")
    cluster.do(lambda: cluster.move(PARTITION))
    put(client, "two")
    assert head_of(client).lineage == [(1, 0), (2, 20)]
    for after, term, upto, upto_term in (
        (40, 2, 40, 2),
        (40, 2, 40, 0),
        (40, 2, 10, 1),
        (41, 2, 40, 2),
        (15, 1, 15, 0),
    ):
        assert read_changes(client, "m", PARTITION, after, term, upto, upto_term=upto_term) == []
    assert read_changes(client, "m", PARTITION, 0, 0, 0) == []


@pytest.mark.parametrize("named", [True, False])
def test_what_is_not_safe_yet_is_not_gone(
    cluster: MemoryCluster, client: Client, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_changes, "ROUNDS", 1)
    put(client, "one")
    owner = cluster.owner(PARTITION)
    held = lineage_copy(owner)
    other = next(member for member in cluster.members if member is not owner and PARTITION in member.held)
    tail = held.tail
    assert tail is not None

    def hold_back() -> None:
        # The primary has begun to wait for one more backup since it told of its head.
        owner.lane.unsent = [(PARTITION, held, tail.since(10)[0][1])]  # type: ignore[assignment]
        lineage_copy(other).tail = None

    cluster.do(hold_back)
    assert head_of(client).counter == 10
    with pytest.raises(NotReady, match="changes after update 10 cannot be read" if named else "at most"):
        read_changes(client, "m", PARTITION, 0, 0, 20, upto_term=1 if named else 0, timeout_s=0.2)
    with pytest.raises(NotReady):
        read_changes(client, "m", PARTITION, 15, 1, 20, upto_term=1 if named else 0, timeout_s=0.2)
    owner.lane.unsent = ()
    answers = read_changes(client, "m", PARTITION, 0, 0, 20, upto_term=1 if named else 0)
    assert len(changes_in(answers)) == 20


def test_while_nobody_serves_it_is_not_gone(cluster: MemoryCluster) -> None:
    with Client(cluster.addresses(), timeout_s=0.5) as client:
        put(client, "one")
        cluster.do(lambda: cluster.rows.__setitem__(PARTITION, [None, None]))
        with pytest.raises(NotReady, match="partition 2"):
            read_changes(client, "m", PARTITION, 0, 0, 30, upto_term=1, timeout_s=0.5)
        with pytest.raises(NotReady, match="partition 2 is not served"):
            heads(client, "m", [PARTITION], timeout_s=0.3)


def test_a_map_without_a_change_stream_says_what_to_set() -> None:
    with MemoryCluster(2, PARTITIONS) as cluster, Client(cluster.addresses(), timeout_s=1) as client:
        put(client, "one")
        for ask in (
            lambda: heads(client, "m", [0]),
            lambda: read_changes(client, "m", 0, 0, 0, 1, upto_term=1),
        ):
            with pytest.raises(Unsupported, match=r"set maps\.m\.changes_bytes"):
                ask()
