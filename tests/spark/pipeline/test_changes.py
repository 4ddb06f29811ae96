"""Following a query: how an interrupt ends it, and where nothing may tell a password."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark")

from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.errors import ConfigError, HoldfastError
from holdfast.spark.pipeline.changes import changes, follow, into_parquet, mirror
from holdfast.spark.rows.changed import change_columns
from holdfast.spark.source.micro_batches import HoldfastStreamReader
from holdfast.spark.source.stream_options import SinkOptions, StreamOptions
from holdfast.wire.values import to_stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECRET = "geheim-und-lang"


class Spark:
    """A query as `follow` sees it; Ctrl-C comes while it waits for Spark's answer."""

    def __init__(self, interrupts: int) -> None:
        self.interrupts = interrupts
        self.waited = 0
        self.whole = 0
        """Waits that came to their end."""
        self.stopped = False
        self.recentProgress = [SimpleNamespace(batchId=0, numInputRows=3, observedMetrics={})]

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        self.waited += 1
        assert self.waited < 5, "nobody stops"
        for _ in range(self.interrupts):
            os.kill(os.getpid(), signal.SIGINT)
        self.whole += 1
        return False

    def stop(self) -> None:
        assert self.whole == self.waited, "within another call"
        self.stopped = True


def as_query(one: Spark) -> StreamingQuery:
    return cast("StreamingQuery", one)


def test_an_interrupt_stops_the_query_and_tears_no_call_to_spark() -> None:
    query = Spark(interrupts=1)
    before = signal.getsignal(signal.SIGINT)
    done = follow(as_query(query))
    assert (query.whole, query.stopped) == (1, True)
    assert (done.batches, done.rows) == (1, 3)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_does_not_wait() -> None:
    query = Spark(interrupts=2)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        follow(as_query(query))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_query_can_be_followed_on_another_thread() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(follow(as_query(Spark(0)), timeout_s=0)))
    thread.start()
    thread.join(120)
    assert found[0].rows == 3


# -- what nobody may read


def chain(error: BaseException | None) -> str:
    """The messages of an error and of all that led to it."""
    told = ""
    while error is not None:
        told += f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__
    return told


def test_options_readers_offsets_and_errors_tell_no_password() -> None:
    given = {
        "address": "127.0.0.1:1",
        "startingPosition": "earliest",
        "map": "m",
        "user": "u",
        "timeout": "0.1",
    }
    for secret in ("password", "token"):
        options = StreamOptions.parse({**given, secret: SECRET})
        reader = HoldfastStreamReader(options, change_columns("binary", None), "binary")
        into = SinkOptions.parse({"address": "a:1", "map": "m", secret: SECRET, "key": "id"})
        assert SECRET not in f"{options} {options!r} {into} {into!r} {reader} {reader!r}"
        with pytest.raises(HoldfastError) as failed:
            reader.initialOffset()
        assert SECRET not in chain(failed.value)
        with pytest.raises(ConfigError) as wrong:
            StreamOptions.parse({**given, secret: SECRET, "onGab": "fail"})
        assert SECRET not in chain(wrong.value)


@pytest.mark.spark
@pytest.mark.slow
def test_plans_progress_checkpoints_and_errors_of_queries_tell_no_password(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    credentials = {"user": "u", "password": SECRET}
    with MemoryCluster(2, 5, changes_bytes=1 << 20) as cluster:
        where = cluster.addresses()
        with Client(where) as client:
            client.put_columns("m", [to_stored(number) for number in range(20)], [to_stored("x")] * 20)
        frame = changes(spark, where, "m", starting="earliest", value_format="text", **credentials)
        frame.explain(extended=True)
        kept = into_parquet(frame, str(tmp_path / "kept"), once=True)
        copied = mirror(
            spark, where, "m", "n", checkpoint=str(tmp_path / "c"), once=True, credentials=credentials
        )
        for query in (kept, copied):
            assert follow(query).rows == 20
            query.explain(extended=True)
            told += [str(query), repr(query), *(one.json for one in query.recentProgress)]
        # The same checkpoint for another map: the query fails.
        other = changes(spark, where, "other", starting="earliest", value_format="text", **credentials)
        query = into_parquet(other, str(tmp_path / "kept"), once=True)
        with pytest.raises(HoldfastError, match="the checkpoint follows the map") as failed:
            follow(query)
        told += [chain(failed.value), str(query.exception())]
    printed = capsys.readouterr()
    assert "Relation" in printed.out
    for text in (*told, printed.out, printed.err):
        assert SECRET not in text
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert any("offsets" in one.parts for one in files)
    for one in files:
        assert SECRET.encode() not in one.read_bytes(), one
