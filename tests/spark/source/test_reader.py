"""What a read asks of members, at a cut and without: the reader as Spark calls it, without Spark."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.memory_cluster import MemoryCluster

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

from holdfast.client.ahead import Wanted, read_ahead  # noqa: E402
from holdfast.client.blocking import Client  # noqa: E402
from holdfast.client.cut_handles import take_cut  # noqa: E402
from holdfast.errors import ConfigError, CutLost  # noqa: E402
from holdfast.server.column_questions import ColumnQuestions  # noqa: E402
from holdfast.server.own_session import OwnSession  # noqa: E402
from holdfast.spark.rows.batch_maker import PARTITION  # noqa: E402
from holdfast.spark.rows.column_schemas import arrow_schema  # noqa: E402
from holdfast.spark.rows.stored import json_data, long_data, string_data  # noqa: E402
from holdfast.spark.source import holdfast_source  # noqa: E402
from holdfast.spark.source.holdfast_source import HoldfastSource  # noqa: E402
from holdfast.spark.source.read_plan import Share  # noqa: E402
from holdfast.spark.source.reader import FilteringReader, HoldfastReader  # noqa: E402
from holdfast.wire import own  # noqa: E402
from holdfast.wire.values import to_stored  # noqa: E402

ROWS = 600


def columns(text: str) -> StructType:
    found = StructType()
    for column in text.split(", "):
        found.add(*column.split())
    return found


SCHEMA = columns("id long, word string")


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    with MemoryCluster(3, 31) as running:
        write(running)
        yield running


def write(cluster: MemoryCluster, rows: range = range(ROWS), word: str = "word") -> None:
    writer = source(cluster, key="id").writer(SCHEMA, False)
    table = pa.Table.from_pylist(
        [{"id": at, "word": f"{word}-{at}"} for at in rows], schema=arrow_schema(SCHEMA)
    )
    writer.write(iter(table.to_batches()))  # type: ignore[arg-type]


def source(cluster: MemoryCluster, **options: str) -> HoldfastSource:
    return HoldfastSource({"address": cluster.addresses(), "map": "m", "timeout": "3", **options})


def reader_of(one: HoldfastSource, filters: list[Filter] | None = None) -> HoldfastReader:
    """As Spark gets it: by way of pickles, and told the filters when it wants them."""
    schema = one.schema()
    travelled: HoldfastSource = pickle.loads(pickle.dumps(one))
    reader = travelled.reader(schema)
    assert isinstance(reader, HoldfastReader)
    if filters is not None:
        assert isinstance(reader, FilteringReader), "the option pushdown is missing"
        assert list(reader.pushFilters(filters)) == filters
    return reader


def rows_of(reader: HoldfastReader, shares: Any = None) -> list[dict[str, Any]]:
    travelled: HoldfastReader = pickle.loads(pickle.dumps(reader))
    found: list[dict[str, Any]] = []
    for share in pickle.loads(pickle.dumps(reader.partitions() if shares is None else shares)):
        for batch in travelled.read(share):
            found += batch.to_pylist()
    return found


@pytest.fixture
def filtering(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the planner that hands filters over."""
    monkeypatch.setattr(holdfast_source, "_takes_filters", lambda: True)


class Asked:
    """What members were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scans: list[own.Scan] = []
        self.whom: dict[int, str] = {}
        """Partition -> the member that was asked last."""
        before = OwnSession._answer

        def answer(session: OwnSession, question: own.Question) -> None:
            if isinstance(question, own.Scan) and not question.map.startswith("__"):
                self.scans.append(question)
                self.whom[question.partition] = session._grid.member_uuid
            before(session, question)

        monkeypatch.setattr(OwnSession, "_answer", answer)


@pytest.fixture
def asked(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


# -- less than everything


def test_a_filter_on_the_key_asks_few_partitions_for_few_keys(
    cluster: MemoryCluster, filtering: None, asked: Asked
) -> None:
    filters: list[Filter] = [In(("id",), (3, 5, 10_000)), GreaterThan(("word",), "a")]
    found = rows_of(reader_of(source(cluster, pushdown="true"), filters))
    assert sorted(row["id"] for row in found) == [3, 5]
    assert 1 <= len(asked.scans) <= 12
    assert sum(len(scan.keys) for scan in asked.scans) == 11  # 10,000 is no byte


def test_filters_that_contradict_each_other_read_nothing(
    cluster: MemoryCluster, filtering: None, asked: Asked
) -> None:
    reader = reader_of(source(cluster, pushdown="true"), [EqualTo(("id",), 3), EqualTo(("id",), 4)])
    assert reader.partitions() == []
    # Spark makes one share of nothing out of that.
    from pyspark.sql.datasource import InputPartition

    assert rows_of(reader, [InputPartition(None)]) == []
    assert asked.scans == []


def test_without_a_planner_that_hands_filters_over_the_reader_takes_none(cluster: MemoryCluster) -> None:
    one = source(cluster, pushdown="true")
    assert not isinstance(one.reader(one.schema()), FilteringReader)


def test_nothing_is_pushed_unless_it_is_asked_for(cluster: MemoryCluster, filtering: None) -> None:
    one = source(cluster)
    assert not isinstance(one.reader(one.schema()), FilteringReader)


def test_a_filter_on_a_map_of_other_clients_is_not_pushed(cluster: MemoryCluster, filtering: None) -> None:
    with Client(cluster.addresses()) as client:
        client.set("other", string_data("any"), json_data(b'{"id": 5}'))
    reader = reader_of(source(cluster, map="other", pushdown="true"), [EqualTo(("id",), 5)])
    assert rows_of(reader) == [{"id": 5}]


def test_a_row_that_another_client_stored_under_a_narrower_number_is_found(
    cluster: MemoryCluster, filtering: None
) -> None:
    with Client(cluster.addresses()) as client:
        client.set("m", to_stored(77), json_data(b'{"id": 77, "word": "twin"}'))
    found = rows_of(reader_of(source(cluster, pushdown="true"), [EqualTo(("id",), 77)]))
    assert sorted(row["word"] for row in found) == ["twin", "word-77"]


@settings(deadline=None, max_examples=25)
@given(
    wanted=st.lists(st.integers(-5, ROWS + 5) | st.none(), max_size=6),
    partitions=st.none() | st.lists(st.integers(0, 30), min_size=1, max_size=8),
    least=st.none() | st.integers(0, 30),
)
def test_what_is_pushed_loses_no_row(
    wanted: list[int | None], partitions: list[int] | None, least: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch, MemoryCluster(3, 31) as cluster:
        patch.setattr(holdfast_source, "_takes_filters", lambda: True)
        write(cluster, range(100))
        options = {"partitionColumn": "true", "pushdown": "true"}
        if partitions is not None:
            options["partitions"] = ",".join(map(str, partitions))
        filters: list[Filter] = [In(("id",), tuple(wanted))]
        if least is not None:
            filters.append(GreaterThan((PARTITION,), least))
        everything = rows_of(reader_of(source(cluster, partitionColumn="true")))
        assert len(everything) == 100
        pushed = rows_of(reader_of(source(cluster, **options), filters))
        kept = [
            row
            for row in everything
            if row["id"] in wanted
            and (partitions is None or row[PARTITION] in partitions)
            and (least is None or row[PARTITION] > least)
        ]
        assert sorted(row["id"] for row in pushed) == sorted(row["id"] for row in kept)


def test_keys_are_chosen_by_option(cluster: MemoryCluster, asked: Asked) -> None:
    found = rows_of(reader_of(source(cluster, keys="[5, 7, 100000]", columns="word")))
    assert sorted(row["word"] for row in found) == ["word-5", "word-7"]
    assert len(asked.scans) <= 10
    assert rows_of(reader_of(source(cluster, keys="[]"))) == []
    assert rows_of(reader_of(source(cluster, keys=f'["{long_data(5).hex()}"]', valueFormat="binary"))) == [
        {"key": long_data(5), "value": json_data(b'{"id":5,"word":"word-5"}')}
    ]
    for keys, why in (
        ('["a"]', "'a' is no value of the key column 'id', which is int64"),
        ("[[1, 2]]", r"a key has the columns id, so \[1, 2\] is none"),
        ("[1.5]", "no JSON list of keys"),
        ("5", "no JSON list of keys"),
    ):
        with pytest.raises(ConfigError, match=why):
            reader_of(source(cluster, keys=keys)).partitions()
    with Client(cluster.addresses()) as client:
        client.set("other", string_data("any"), json_data(b'{"id": 5}'))
    with pytest.raises(ConfigError, match="the key columns of map 'other' are unknown"):
        reader_of(source(cluster, map="other", keys="[5]")).partitions()


def test_partitions_are_chosen_by_option_and_shown_in_a_column(cluster: MemoryCluster, asked: Asked) -> None:
    found = rows_of(reader_of(source(cluster, partitions="2-4,9", partitionColumn="true")))
    assert {row[PARTITION] for row in found} == {2, 3, 4, 9}
    assert {scan.partition for scan in asked.scans} == {2, 3, 4, 9}
    with pytest.raises(ConfigError, match="no partition 40; they are 0 to 30"):
        reader_of(source(cluster, partitions="40")).partitions()


def test_a_partition_column_in_a_given_schema_is_filled(cluster: MemoryCluster) -> None:
    one = source(cluster)
    reader = one.reader(columns(f"{PARTITION} integer, id long"))
    assert isinstance(reader, HoldfastReader)
    everything = rows_of(reader)
    assert len(everything) == ROWS
    assert set(everything[0]) == {PARTITION, "id"}


def test_columns_are_cut_out_by_the_members(cluster: MemoryCluster, asked: Asked) -> None:
    found = rows_of(reader_of(source(cluster, columns="word")))
    assert sorted(row["word"] for row in found) == sorted(f"word-{at}" for at in range(ROWS))
    assert {tuple(scan.fields or ()) for scan in asked.scans} == {("word",)}
    asked.scans.clear()
    reader = source(cluster).reader(columns("id long"))
    assert isinstance(reader, HoldfastReader)
    assert sorted(row["id"] for row in rows_of(reader)) == list(range(ROWS))
    assert {tuple(scan.fields or ()) for scan in asked.scans} == {("id",)}
    asked.scans.clear()
    rows_of(reader_of(source(cluster)))
    assert {scan.fields for scan in asked.scans} == {None}


def test_values_that_nobody_wants_are_not_sent(cluster: MemoryCluster, asked: Asked) -> None:
    reader = source(cluster).reader(columns(f"{PARTITION} integer"))
    assert isinstance(reader, HoldfastReader)
    assert len(rows_of(reader)) == ROWS
    assert [scan.fields for scan in asked.scans] == [[]] * 31


def test_a_limit_is_exact_and_stops_early(cluster: MemoryCluster, asked: Asked) -> None:
    for limit in (0, 1, 50, ROWS + 1):
        asked.scans.clear()
        reader = reader_of(source(cluster, limit=str(limit)))
        assert len(reader.partitions()) == 1
        found = rows_of(reader)
        assert len(found) == len({row["id"] for row in found}) == min(limit, ROWS)
        if limit <= 50:
            assert len(asked.scans) < 10


# -- at a cut


def test_a_cut_is_read_as_it_was_however_often(cluster: MemoryCluster) -> None:
    one = source(cluster, cut="true")
    write(cluster, range(ROWS // 4), "sooner")
    reader = reader_of(one)
    shares = reader.partitions()
    write(cluster, range(ROWS // 2), "later")
    write(cluster, range(ROWS, ROWS + 100))
    wanted = [{"id": at, "word": f"word-{at}"} for at in range(ROWS)]
    for _ in range(2):
        assert sorted(rows_of(reader, shares), key=lambda row: row["id"]) == wanted
    assert len(rows_of(reader_of(source(cluster)))) == ROWS + 100


def test_a_cut_is_read_on_when_partitions_move_and_a_member_dies(cluster: MemoryCluster) -> None:
    reader = reader_of(source(cluster, cut="true", numPartitions="6"))
    shares = list(reader.partitions())
    found: list[dict[str, Any]] = []
    for number, share in enumerate(shares):
        write(cluster, range(ROWS), f"later-{number}")
        for at, batch in enumerate(reader.read(share)):
            found += batch.to_pylist()
            if number == 2 and at == 0:
                cluster.do(lambda: cluster.kill(cluster.members[0]))
        if number == 3:
            cluster.do(lambda: [cluster.move(partition) for partition in range(0, 31, 3)])
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": at, "word": f"word-{at}"} for at in range(ROWS)
    ]


def test_each_share_carries_its_part_of_the_cut(cluster: MemoryCluster) -> None:
    shares = reader_of(source(cluster, cut="true")).partitions()
    for share in shares:
        assert isinstance(share, Share)
        assert share.cut is not None
        assert {partition for _, partition in share.cut.marks} == set(share.partitions)
    assert len({share.cut.id for share in shares if isinstance(share, Share) and share.cut}) == 1


def test_any_reads_from_backups_too(cluster: MemoryCluster, asked: Asked) -> None:
    found = rows_of(reader_of(source(cluster, readFrom="any")))
    assert sorted(row["id"] for row in found) == list(range(ROWS))
    assert all(scan.cut for scan in asked.scans)
    assert len(asked.scans) == 31
    roles = Counter(cluster.rows[partition].index(whom) for partition, whom in asked.whom.items())
    assert roles == {0: 16, 1: 15}


def test_a_cut_whose_lease_is_over_is_told_with_what_to_do(cluster: MemoryCluster) -> None:
    reader = reader_of(source(cluster, cut="true", cutLease="2"))
    shares = reader.partitions()
    for member in cluster.members:
        member.now += 3_000_000_000
        cluster.do(lambda member=member: member.cuts.sweep())
    with pytest.raises(CutLost, match=r"map 'm' cannot be read at its cut any more.*cutLease \(2 s\).*again"):
        rows_of(reader, shares)


def test_an_empty_map_at_a_cut_has_no_rows(cluster: MemoryCluster, asked: Asked) -> None:
    reader = source(cluster, map="nothing", cut="true", valueFormat="binary").reader(columns("key binary"))
    assert isinstance(reader, HoldfastReader)
    assert rows_of(reader) == []
    assert asked.scans == []


# -- reading ahead


def test_the_next_partition_is_asked_for_before_the_last_is_handed_out(
    cluster: MemoryCluster, asked: Asked
) -> None:
    with Client(cluster.addresses()) as client:
        reading = read_ahead(client, Wanted("m"), list(range(31)))
        partition, pages = next(reading)
        assert partition == 0
        assert sum(page.rows for page in pages) > 0
        # Its answer is on its way: the member that sends it need not have been asked when this line runs.
        (second, _) = next(reading)
        assert second == 1
        assert {scan.partition for scan in asked.scans} >= {0, 1}


def test_pages_are_put_together_whole(cluster: MemoryCluster) -> None:
    with Client(cluster.addresses()) as client:
        for wanted in (Wanted("m", bytes_max=100), Wanted("m", bytes_max=100, cut=take_cut(client, ["m"]))):
            found: Counter[bytes] = Counter()
            for _, pages in read_ahead(client, wanted, list(range(31))):
                assert len(pages) > 1
                for page in pages:
                    found.update(page.split()[0])
            assert found == Counter({long_data(at): 1 for at in range(ROWS)})


def test_a_member_that_is_lost_half_way_through_a_partition_is_begun_anew(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ColumnQuestions._next_page
    pages = 0

    def next_page(questions: ColumnQuestions, question: own.NextPage) -> None:
        nonlocal pages
        pages += 1
        if pages == 40:
            cluster.kill(next(one for one in cluster.members if one is questions._grid))
            return
        before(questions, question)

    monkeypatch.setattr(ColumnQuestions, "_next_page", next_page)
    found: Counter[bytes] = Counter()
    with Client(cluster.addresses(), timeout_s=5) as client:
        for _, some in read_ahead(client, Wanted("m", bytes_max=200), list(range(31))):
            for page in some:
                found.update(page.split()[0])
    assert pages > 40
    assert found == Counter({long_data(at): 1 for at in range(ROWS)})


# -- columns that nobody has told


def put(cluster: MemoryCluster, entries: dict[bytes, bytes]) -> None:
    with Client(cluster.addresses()) as client:
        client.put_columns("other", list(entries), list(entries.values()))


def other(cluster: MemoryCluster, **options: str) -> tuple[str, list[dict[str, Any]]]:
    """The columns of a map of other clients as they are found out, and its rows."""
    one = source(cluster, map="other", **options)
    return one.schema().simpleString(), rows_of(reader_of(one))


def test_json_of_other_clients_is_looked_at(cluster: MemoryCluster) -> None:
    values = [
        {"id": 1, "amount": 1, "flag": True, "city": None, "tags": ["a"], "mixed": 1},
        {"id": 2, "amount": 1.5, "flag": None, "mixed": "x", "more": 2**70},
    ]
    put(cluster, {string_data(str(at)): json_data(msgspec.json.encode(row)) for at, row in enumerate(values)})
    struct, rows = other(cluster)
    kinds = dict(part.split(":") for part in struct.removeprefix("struct<").removesuffix(">").split(","))
    assert kinds == {
        "id": "bigint",
        "amount": "double",
        "flag": "boolean",
        "city": "string",
        "tags": "string",
        "mixed": "string",
        "more": "double",
    }
    first, second = sorted(rows, key=lambda row: row["id"])
    assert (first["tags"], first["mixed"], first["amount"]) == ('["a"]', "1", 1.0)
    assert (second["mixed"], second["more"], second["flag"]) == ("x", 2.0**70, None)


def test_plain_values_of_other_clients_are_columns_of_their_type(cluster: MemoryCluster) -> None:
    put(cluster, {to_stored(f"k{at}"): to_stored(at * 0.5) for at in range(20)})
    struct, rows = other(cluster)
    assert struct == "struct<key:string,value:double>"
    assert sorted(rows, key=lambda row: row["value"]) == [
        {"key": f"k{at}", "value": at / 2} for at in range(20)
    ]


def test_numbers_of_several_widths_are_of_the_widest(cluster: MemoryCluster) -> None:
    put(cluster, {to_stored(at): to_stored("x") for at in (1, 2, 2**40)})
    struct, rows = other(cluster)
    assert struct == "struct<key:bigint,value:string>"
    assert sorted(row["key"] for row in rows) == [1, 2, 2**40]


def test_anything_else_is_binary(cluster: MemoryCluster) -> None:
    put(cluster, {to_stored(1): to_stored("x"), to_stored(2): json_data(b"{}")})
    assert other(cluster)[0] == "struct<key:binary,value:binary>"


def test_a_filter_on_a_plain_key_is_pushed(cluster: MemoryCluster, filtering: None, asked: Asked) -> None:
    put(cluster, {to_stored(f"k{at}"): to_stored(at) for at in range(50)})
    one = source(cluster, map="other", pushdown="true")
    reader = reader_of(one, [EqualTo(("key",), "k7")])
    asked.scans.clear()
    assert rows_of(reader) == [{"key": "k7", "value": 7}]
    assert len(asked.scans) == 1


def test_without_samples_columns_have_to_be_given(cluster: MemoryCluster) -> None:
    put(cluster, {to_stored(1): to_stored("x")})
    with pytest.raises(ConfigError, match=r"give them with \.schema"):
        source(cluster, map="other", sampleRows="0").schema()


def test_a_sample_is_small(cluster: MemoryCluster, asked: Asked) -> None:
    put(cluster, {long_data(at): to_stored(at) for at in range(2000)})
    source(cluster, map="other", sampleRows="10").schema()
    assert sum(scan.limit or 10**9 for scan in asked.scans) <= 31 * 2


# -- what must be the same on both sides


def test_an_executor_of_another_version_is_named(cluster: MemoryCluster) -> None:
    reader = reader_of(source(cluster))
    reader._release = "0.0.1"
    with pytest.raises(ConfigError, match=r"the executor has Holdfast .*, the driver has 0\.0\.1"):
        rows_of(reader)


def test_secrets_are_in_nothing_that_is_shown(cluster: MemoryCluster) -> None:
    for member in cluster.members:
        member.user = ("me", "hush-hush", None)
    one = source(cluster, user="me", password="hush-hush", cut="true")
    reader = reader_of(one)
    shares = reader.partitions()
    for shown in (reader, shares, reader._options, reader._known):
        assert "hush-hush" not in repr(shown)
    assert "hush-hush" not in str(pickle.dumps(shares))
    wrong = source(cluster, user="me", password="hush-hush-wrong")
    with pytest.raises(Exception, match="credentials are missing or wrong") as told:
        wrong.schema()
    assert "hush-hush" not in str(told.value)
