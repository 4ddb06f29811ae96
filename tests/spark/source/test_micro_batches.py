"""The change stream without Spark: what a batch tells, again and again, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.streaming_judge import Verdict, judge
from tests.spark.told_history import ToldHistory

from holdfast.errors import ChangesGone, ConfigError

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from holdfast.spark.rows.bad_rows import BadRow
from holdfast.spark.rows.changed import ChangeMaker, ChangeRow, change_columns
from holdfast.spark.rows.column_schemas import StoredSchema
from holdfast.spark.rows.stored import cell_text, json_data, long_data, string_data
from holdfast.spark.source.member_changes import undo
from holdfast.spark.source.micro_batches import HoldfastStreamReader, first_offset, heads_of, plan, rows_of
from holdfast.spark.source.offsets import BadOffset, Limit, Offset, Place, pieces
from holdfast.spark.source.stream_options import SinkOptions, StreamOptions
from holdfast.wire.values import Serialized, to_stored

MAPS = ("m",)


def next_batch(
    history: ToldHistory, start: Offset, rows: int | None = None, on_gap: str = "fail"
) -> tuple[Offset, list[ChangeRow]]:
    end = plan(history, start, MAPS, heads_of(history, MAPS), Limit(rows, jump=on_gap == "restart"))
    return end, list(rows_of(history, pieces(start, end), on_gap))


def brief(rows: list[ChangeRow]) -> list[tuple[int, int, str, str, str]]:
    return [
        (row.partition, row.counter, row.op, (row.key or b"").decode(), (row.after or b"").decode())
        for row in rows
    ]


def replayed(rows: list[ChangeRow]) -> dict[bytes, bytes]:
    """What a sink holds that applies the rows in their order."""
    found: dict[bytes, bytes] = {}
    homes: dict[bytes, int] = {}
    for row in rows:
        if row.op == "restart":
            for key in [key for key, home in homes.items() if home == row.partition]:
                found.pop(key, None)
            continue
        assert row.key is not None
        homes[row.key] = row.partition
        if row.after is None:
            del found[row.key]
        else:
            found[row.key] = row.after
    return found


def held(history: ToldHistory) -> dict[bytes, bytes]:
    return {key: value for entries in history.held.values() for key, value in entries.items()}


def test_a_stream_from_the_latest_update_tells_what_comes_after() -> None:
    history = ToldHistory()
    history.put("m", 1, "a", "1")
    start = first_offset(history, MAPS, "latest")
    end, rows = next_batch(history, start)
    assert rows == []
    assert end != start
    history.put("m", 1, "a", "2")
    history.put("m", 2, "b", "3")
    history.put("m", 1, "a", None)
    end, rows = next_batch(history, end)
    assert brief(rows) == [(1, 2, "update", "a", "2"), (1, 3, "remove", "a", ""), (2, 1, "insert", "b", "3")]
    assert [row.before for row in rows] == [b"1", b"2", None]
    assert [row.time_ms for row in rows] == [1001, 1002, 1000]
    assert next_batch(history, end) == (end, [])


def test_a_stream_from_the_earliest_update_tells_what_members_still_know() -> None:
    history = ToldHistory()
    for number in range(4):
        history.put("m", 1, "a", str(number))
    history.term = 5
    history.put("m", 1, "a", "4")
    history.put("m", 2, "b", "0")
    history.forget("m", 1, 2)
    start = first_offset(history, MAPS, "earliest")
    assert start.at(("m", 1)) == Place(1, 2)
    assert [row[1] for row in brief(next_batch(history, start)[1])] == [3, 4, 5, 1]


def test_a_stream_from_a_snapshot_tells_the_entries_first_and_then_changes() -> None:
    history = ToldHistory()
    for key, value in (("b", "1"), ("a", "2"), ("b", "3"), ("c", "4")):
        history.put("m", 1, key, value)
    history.put("m", 1, "c", None)
    end, rows = next_batch(history, first_offset(history, MAPS, "snapshot"))
    assert brief(rows) == [(1, 5, "insert", "a", "2"), (1, 5, "insert", "b", "3")]
    assert {(row.before, row.time_ms) for row in rows} == {(None, None)}
    history.put("m", 1, "a", "5")
    end, rows = next_batch(history, end)
    assert brief(rows) == [(1, 6, "update", "a", "5")]


def test_a_batch_that_is_read_again_later_is_the_same() -> None:
    history = ToldHistory()
    history.put("m", 0, "a", "1")
    start = first_offset(history, MAPS, "snapshot")
    end, rows = next_batch(history, start)
    again = first_offset(history, MAPS, "snapshot")
    for number in range(5):
        history.put("m", 0, "a", f"later {number}")
        history.put("m", number % 4, f"k{number}", "x")
    assert list(rows_of(history, pieces(again, end), "fail")) == rows


def test_several_maps_are_one_stream() -> None:
    history = ToldHistory()
    history.put("m", 1, "a", "1")
    history.put("n", 1, "a", "2")
    maps = ("m", "n")
    start = first_offset(history, maps, "earliest")
    end = plan(history, start, maps, heads_of(history, maps), Limit())
    rows = list(rows_of(history, pieces(start, end), "fail"))
    assert [(row.map, row.after) for row in rows] == [("m", b"1"), ("n", b"2")]


def test_where_a_limit_cuts_between_two_terms_the_place_has_the_right_one() -> None:
    history = ToldHistory()
    for term in (1, 4, 9):
        history.term = term
        for number in range(3):
            history.put("m", 0, "a", f"{term} {number}")
    offset = first_offset(history, MAPS, "earliest")
    seen = []
    for _ in range(9):
        offset, rows = next_batch(history, offset, rows=1)
        seen.append((offset.at(("m", 0)), len(rows)))
    assert seen == [
        (Place(term, 3 * at + one + 1), 1) for at, term in enumerate((1, 4, 9)) for one in range(3)
    ]
    assert next_batch(history, offset, rows=1) == (offset, [])


def test_a_partition_of_unknown_size_comes_alone_under_a_limit() -> None:
    history = ToldHistory()
    for partition in range(3):
        history.put("m", partition, "a", "x")
    history.dumb.add(0)
    end, rows = next_batch(history, first_offset(history, MAPS, "snapshot"), rows=10)
    assert {row.partition for row in rows} == {0}
    assert {row.partition for row in next_batch(history, end, rows=10)[1]} == {1, 2}


@pytest.mark.parametrize("rows", [None, 3])
def test_gone_history_fails_and_names_what_is_lost(rows: int | None) -> None:
    history = ToldHistory()
    history.put("m", 1, "a", "1")
    offset, _ = next_batch(history, first_offset(history, MAPS, "latest"))
    for number in range(9):
        history.put("m", 1, "a", str(number))
    history.forget("m", 1, 6)
    with pytest.raises(ChangesGone, match="map 'm', partition 1: the changes after update 1 up to"):
        next_batch(history, offset, rows)


@pytest.mark.parametrize("rows", [None, 3])
def test_gone_history_starts_over_if_that_is_asked_for(rows: int | None) -> None:
    history = ToldHistory()
    history.put("m", 1, "a", "1")
    history.put("m", 1, "b", "1")
    offset, told = next_batch(history, first_offset(history, MAPS, "snapshot"), rows, "restart")
    history.put("m", 1, "b", None)
    for number in range(9):
        history.put("m", 1, f"k{number % 3}", str(number))
    history.forget("m", 1, 6)
    end, more = next_batch(history, offset, rows, "restart")
    assert brief(more)[0] == (1, 12, "restart", "", "")
    assert {row[1:3] for row in brief(more)[1:]} == {(12, "insert")}
    assert replayed(told + more) == held(history)
    # What is read again when even less is known begins anew as well, and the next batch begins anew once more.
    history.put("m", 1, "z", "1")
    history.forget("m", 1, 13)
    again = list(rows_of(history, pieces(offset, end), "restart"))
    assert replayed(told + more + again) == held(history)
    with pytest.raises(ChangesGone):
        list(rows_of(history, pieces(offset, end), "fail"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda history: setattr(history, "id", "c2"), "follows the cluster c1, but this is c2"),
        (
            lambda history: history.told["m", 1].pop(),
            "is at update 3 of term 1, but the last update is 2",
        ),
        (lambda history: rewrite(history, 7), "that update is of term 7"),
        (lambda history: (rewrite(history, 7), history.put("m", 1, "b", "x")), "that update is of term 7"),
    ],
)
@pytest.mark.parametrize("on_gap", ["fail", "restart"])
def test_another_history_is_refused_whatever_is_asked_for(
    change: Callable[[ToldHistory], object], why: str, on_gap: str
) -> None:
    history = ToldHistory()
    for number in range(3):
        history.put("m", 1, "a", str(number))
    offset, _ = next_batch(history, first_offset(history, MAPS, "earliest"))
    change(history)
    with pytest.raises(BadOffset, match=why) as refused:
        next_batch(history, offset, on_gap=on_gap)
    assert "new checkpoint" in str(refused.value)


def rewrite(history: ToldHistory, term: int) -> None:
    """Let the last update have been another one, of another primary."""
    history.told["m", 1].pop()
    history.term = term
    history.put("m", 1, "a", "other")


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.integers(0, 2), st.sampled_from("abc"), st.sampled_from(["x", "y", None])
        ),
        st.tuples(st.just("term")),
        st.tuples(st.just("forget"), st.integers(0, 2), st.integers(0, 30)),
        st.tuples(st.just("batch"), st.one_of(st.none(), st.integers(1, 6))),
        st.tuples(st.just("crash")),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(steps, st.sampled_from(["snapshot", "earliest"]))
def test_whatever_happens_the_sink_ends_with_the_map(told: list[tuple[object, ...]], starting: str) -> None:
    history = ToldHistory(3)
    offset = first_offset(history, MAPS, starting)
    sink: list[ChangeRow] = []
    for step in told:
        match step:
            case ("put", int(partition), str(key), value):
                key = f"{key}{partition}"
                if value is None and key.encode() not in history.held.get(("m", partition), {}):
                    continue
                history.put("m", partition, key, value if isinstance(value, str) else None)
            case ("term",):
                history.term += 1
            case ("forget", int(partition), int(upto)):
                known = len(history.told.get(("m", partition), []))
                history.forget("m", partition, max(history.since.get(("m", partition), 0), min(known, upto)))
            case ("batch", rows):
                end, more = next_batch(history, offset, rows if isinstance(rows, int) else None, "restart")
                sink += more
                offset = Offset.of_json(end.to_json())
            case ("crash",):
                # The batch was planned, and what the sink has of it is thrown away.
                end, _ = next_batch(history, offset, 3, "restart")
                sink += rows_of(history, pieces(offset, Offset.of_json(end.to_json())), "restart")
                offset = end
    while (batch := next_batch(history, offset, 4, "restart"))[0] != offset:
        offset = batch[0]
        sink += batch[1]
    assert replayed(sink) == held(history)
    whole = [row for row in sink if row.time_ms is not None]
    assert len({(row.partition, row.term, row.counter) for row in whole}) == len(whole)


def test_changes_are_taken_back_the_latest_first() -> None:
    history = ToldHistory()
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("b", "3"), ("a", None)):
        history.put("m", 0, key, value)
    now = history.held["m", 0]
    for counter in range(7):
        since = list(history.changes(("m", 0), Place(1, counter), Place(1, 6)))
        assert undo(now, since) == history.entries(("m", 0), Place(1, counter))


# -- rows


def _columns(**kinds: str) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


FLIGHTS = StoredSchema.of(
    StructType.fromJson(_columns(id="long", name="string", at="timestamp", n="double")), ["id"], "json"
)


def row(
    op: str,
    key: bytes | None,
    before: bytes | None = None,
    after: bytes | None = None,
    transaction: bytes | None = None,
) -> ChangeRow:
    return ChangeRow("flights", 3, 2, 17, op, 1_600_000_000_123, key, before, after, transaction)


def test_values_come_in_the_columns_of_the_map() -> None:
    schema = change_columns("json", FLIGHTS)
    one = json_data(b'{"id":1,"name":"x","at":"2013-01-01T10:00:00.000001Z","n":"NaN"}')
    two = json_data(b'{"id":1,"name":null,"other":3}')
    rows = [
        row("insert", long_data(1), None, one),
        row("update", long_data(1), one, two, b"\x0a\xff"),
        row("remove", to_stored(7), two),
        row("restart", None),
    ]
    found = ChangeMaker(schema, "json", ["flights"]).batch(rows).to_pylist()
    at = datetime(2013, 1, 1, 10, 0, 0, 1, UTC)
    value = {"id": 1, "name": "x", "at": at}
    assert found[0]["after"].pop("n") != found[1]["before"].pop("n")
    assert found[0]["before"] is None
    assert found[0]["after"] == found[1]["before"] == value
    assert found[1]["after"] == found[2]["before"] == {"id": 1, "name": None, "at": None, "n": None}
    assert [one["key"] for one in found] == [1, 1, 7, None]
    assert [one["op"] for one in found] == ["insert", "update", "remove", "restart"]
    assert [one["transaction"] for one in found] == [None, "0aff", None, None]
    assert found[2]["after"] is found[3]["after"] is found[3]["before"] is None
    assert found[0]["time"] == datetime.fromtimestamp(1_600_000_000.123, UTC)
    assert (found[0]["map"], found[0]["partition"], found[0]["term"], found[0]["counter"]) == (
        "flights",
        3,
        2,
        17,
    )


def test_keys_and_values_that_do_not_fit_are_named() -> None:
    maker = ChangeMaker(change_columns("json", FLIGHTS), "json", ["flights"])
    with pytest.raises(BadRow, match=r"key 'x' does not fit.*the key is no integer"):
        maker.batch([row("insert", string_data("x"), None, json_data(b"{}"))])
    with pytest.raises(BadRow, match=r"map 'flights', partition 3, key 1 does not fit .* no JSON value"):
        maker.batch([row("insert", long_data(1), None, string_data("text"))])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ü", "ü"),
        (5, "5"),
        (True, "true"),
        ({"a": [1]}, '{"a":[1]}'),
        (Serialized(b"\0\0\0\x63ab"), "000000636162"),
        (None, "null"),
    ],
)
def test_text_is_what_people_read(value: object, text: str) -> None:
    assert cell_text(to_stored(value)) == text


@pytest.mark.parametrize("value_format", ["text", "binary"])
def test_any_value_can_be_told(value_format: str) -> None:
    maker = ChangeMaker(change_columns(value_format, None), value_format, ["m"])
    found = maker.batch([row("update", string_data("k"), string_data("v"), long_data(1))]).to_pylist()[0]
    cells = [found["key"], found["before"], found["after"]]
    assert cells == (
        ["k", "v", "1"] if value_format == "text" else [string_data("k"), string_data("v"), long_data(1)]
    )


def test_batches_are_bounded_by_rows_and_bytes() -> None:
    maker = ChangeMaker(change_columns("binary", None), "binary", ["m"])
    many = (row("insert", long_data(at), None, b"x" * 8) for at in range(20_000))
    assert [batch.num_rows for batch in maker.batches(many)] == [8192, 8192, 3616]
    large = (row("insert", long_data(at), None, b"x" * (3 << 20)) for at in range(5))
    assert [batch.num_rows for batch in maker.batches(large)] == [2, 2, 1]


def test_a_stream_has_its_own_columns() -> None:
    with pytest.raises(ConfigError, match="has the columns map, partition"):
        ChangeMaker(StructType.fromJson(_columns(id="long")), "json", ["m"])


# -- options


def stream_options(**given: str) -> StreamOptions:
    return StreamOptions.parse({"address": "a:1", "startingPosition": "latest", "map": "m", **given})


def test_options_of_a_stream() -> None:
    found = stream_options(onGap="Restart", maxRowsPerBatch="7", valueFormat="text")
    assert (found.maps, found.starting, found.on_gap, found.rows_max) == (("m",), "latest", "restart", 7)
    assert found.value_format == "text"
    several = StreamOptions.parse({"address": "a:1", "startingposition": "earliest", "maps": "m, n"})
    assert several.maps == ("m", "n")
    assert several.options.map == "m"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingPosition": "now"}, "startingPosition is latest, earliest or snapshot, not 'now'"),
        ({"onGap": "ignore"}, "onGap is fail or restart"),
        ({"maxRowsPerBatch": "0"}, "maxRowsPerBatch is a whole number above 0"),
        ({"onGab": "fail"}, "did you mean onGap"),
        ({"maps": "x,y"}, "either maps=x,y or one map"),
        ({"columns": "a"}, "columns is not for change streams"),
        ({"wrong": "a"}, "unknown option 'wrong'"),
        ({"map": "__schemas.spark"}, "Holdfast's own"),
    ],
)
def test_wrong_options_of_a_stream_are_named(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        stream_options(**given)


def test_several_maps_are_checked_each() -> None:
    for maps, why in (("m,__x", "Holdfast's own"), ("m,m", "named twice")):
        with pytest.raises(ConfigError, match=why):
            StreamOptions.parse({"address": "a:1", "startingPosition": "latest", "maps": maps})
    with pytest.raises(ConfigError, match="needs the option startingPosition"):
        StreamOptions.parse({"address": "a:1", "map": "m"})


def test_options_of_a_sink() -> None:
    given = {"address": "a:1", "path": "m", "key": "id", "checkpointLocation": "/x", "queryName": "q"}
    found = SinkOptions.parse({**given, "opColumn": "op", "sourcePartitions": "31", "idempotent": "FALSE"})
    assert (found.op_column, found.source_partitions, found.idempotent) == ("op", 31, False)
    assert SinkOptions.parse(given).idempotent
    for wrong, why in (
        ({"opColum": "op"}, "did you mean opColumn"),
        ({"columns": "a"}, "not for streams into a map"),
        ({"valueFormat": "xml"}, "valueFormat|stored as json or binary"),
    ):
        with pytest.raises(ConfigError, match=why):
            SinkOptions.parse({**given, **wrong})


def test_a_reader_is_pickled_without_its_connections() -> None:
    options = stream_options(valueFormat="binary")
    reader = HoldfastStreamReader(options, change_columns("binary", None), "binary")
    reader.history()
    again = pickle.loads(pickle.dumps(reader))
    assert again.history() is not reader.history()
    assert list(again.read(None)) == []


# -- the judge of the tests with real members


def test_the_judge_sees_what_is_missing_twice_or_wrong() -> None:
    history = ToldHistory()
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "3")):
        history.put("m", 1, key, value)
    _, rows = next_batch(history, first_offset(history, MAPS, "earliest"))
    told = [
        {
            "partition": row.partition,
            "term": row.term,
            "counter": row.counter,
            "time": row.time_ms,
            "key": row.key and row.key.decode(),
            "before": row.before and row.before.decode(),
            "after": row.after and row.after.decode(),
        }
        for row in rows
    ]
    content = {"a": "2", "c": "3"}
    assert judge(told[::-1], content) == Verdict(rows=5)
    assert judge([*told, told[2]], content).twice == [(1, 1, 3)]
    assert judge([told[0], told[1], *told[3:]], content).wrong == ["a: 1, in the map 2"]
    assert len(judge(told[1:], content).torn) == 1
    assert judge(told[:-1], content).wrong == ["c: None, in the map 3"]
