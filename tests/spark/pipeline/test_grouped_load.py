"""Loads in transactions of n rows: nobody sees a part of such rows, whoever is killed meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from click.testing import CliRunner

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyspark")

from holdfast.cli.main import holdfast  # noqa: E402
from holdfast.client.blocking import Client  # noqa: E402
from holdfast.client.client_transaction import ClientTransaction  # noqa: E402
from holdfast.client.cut_handles import end_cut, scan_cut  # noqa: E402
from holdfast.client.whole_cuts import take_whole_cut  # noqa: E402
from holdfast.client_core.routing import parse_addresses  # noqa: E402
from holdfast.errors import ConfigError, HoldfastError  # noqa: E402
from holdfast.spark.pipeline.load import Loaded, load  # noqa: E402
from holdfast.wire.values import from_stored  # noqa: E402
from holdfast_lab.processes.local_cluster import LocalCluster  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GROUP = 50
ROWS = 4000
CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = 31
[maps.default]
backups = 1
[maps.plain]
transactional = false
"""
Rounds = Counter[str]


@pytest.fixture
def members(java: None) -> Iterator[LocalCluster]:
    with LocalCluster(3, CONFIG) as running:
        running.wait_settled()
        yield running


def written(folder: Path, word: str) -> str:
    """A file of rows; `GROUP` rows that follow each other are a group."""
    table = pa.table({"id": pa.array(range(ROWS), pa.int64()), "word": [word] * ROWS})
    pq.write_table(table, folder / f"{word}.parquet", row_group_size=20 * GROUP)
    return str(folder / f"{word}.parquet")


class Onlooker:
    """Looks at groups, in transactions and at whole cuts, while the block runs."""

    def __init__(self, members: LocalCluster, name: str) -> None:
        self._members = members
        self._name = name
        self._running = True
        self.cuts = self.reads = self.partly = 0
        """`partly`: cuts that have shown some groups and not others."""
        self.torn: list[str] = []
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(look,)) for look in (self._cut, self._read)
        ]

    def _work(self, look: Callable[[], None]) -> None:
        while self._running:
            # Members die here: then it looks again.
            with suppress(HoldfastError):
                look()

    def groups(self, client: Client) -> dict[int, Rounds]:
        """Of each group, how many of its rows are of which load."""
        found: dict[int, Rounds] = defaultdict(Counter)
        cut = take_whole_cut(client, [self._name], timeout=5)
        for partition in range(client.partition_count):
            for page in scan_cut(client, cut, self._name, partition):
                for cell in page.columns.split()[1]:
                    row: Any = from_stored(cell)
                    found[row["id"] // GROUP][row["word"]] += 1
        with suppress(HoldfastError):
            end_cut(client, cut)
        return found

    def _cut(self) -> None:
        with Client(self._members.client_addresses(), timeout_s=5) as client:
            found = self.groups(client)
        self.cuts += 1
        self.torn += [f"cut: {group} {rounds}" for group, rounds in found.items() if not is_whole(rounds)]
        self.partly += len({tuple(found.get(group, ())) for group in range(ROWS // GROUP)}) > 1

    def _read(self) -> None:
        first = GROUP * random.randrange(ROWS // GROUP)
        seeds = parse_addresses(self._members.client_addresses())
        rounds: Rounds = Counter()
        with ClientTransaction(seeds, optimistic=True) as transaction:
            for number in range(first, first + GROUP):
                row: Any = transaction.get(self._name, number)
                rounds[row["word"] if row else "nothing"] += 1
        # It has committed: so this is what was there at one moment.
        self.reads += 1
        if not is_whole(rounds):
            self.torn.append(f"transaction: {first // GROUP} {rounds}")

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        for thread in self._threads:
            thread.join(60)


def is_whole(rounds: Rounds) -> bool:
    return list(rounds.values()) == [GROUP]


def when_some_is_there(members: LocalCluster, name: str, word: str, deed: Callable[[], None]) -> None:
    """Do it when a third of the rows is there."""
    while True:
        with suppress(HoldfastError), Client(members.client_addresses(), timeout_s=5) as client:
            cells = [
                cell
                for partition in range(client.partition_count)
                for page in client.scan(name, partition)
                for cell in page.split()[1]
            ]
            if sum(f'"{word}"'.encode() in cell for cell in cells) > ROWS // 3:
                deed()
                return
        time.sleep(0.05)


def loaded(
    spark: SparkSession, members: LocalCluster, files: str, rows: int | None, deed: Callable[[], None]
) -> Loaded:
    name = "rows"
    word = Path(files).stem
    doing = threading.Thread(target=when_some_is_there, args=(members, name, word, deed), daemon=True)
    doing.start()
    try:
        return load(
            spark,
            files,
            name,
            "id",
            address=",".join(members.client_addresses()),
            rows_per_second=1500,
            transaction_rows=rows,
            tasks=2,
        )
    finally:
        doing.join(30)


def test_nobody_sees_a_part_of_a_group_while_loads_and_members_are_killed(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    with Onlooker(members, "rows") as onlooker:
        with pytest.raises(HoldfastError):
            # As when the driver dies: the tasks are killed where they are.
            loaded(spark, members, written(tmp_path, "one"), GROUP, spark.sparkContext.cancelAllJobs)
        done = loaded(
            spark, members, written(tmp_path, "two"), GROUP, lambda: members.kill(members.alive[-1])
        )
        assert (done.rows, done.inserted) == (ROWS, ROWS)
    assert onlooker.torn == []
    assert onlooker.cuts > 2
    assert onlooker.reads > 2
    assert onlooker.partly > 1, "it has looked while the loads ran"
    members.wait_safe(60)
    with Client(members.client_addresses()) as client:
        groups = onlooker.groups(client)
    assert groups == {group: Counter(two=GROUP) for group in range(ROWS // GROUP)}


def test_without_transactions_groups_are_seen_torn(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    with Onlooker(members, "rows") as onlooker:
        loaded(spark, members, written(tmp_path, "one"), None, lambda: None)
    assert any(torn.startswith("cut") for torn in onlooker.torn)


def test_what_takes_no_part_is_refused_before_anything_is_written(
    spark: SparkSession, members: LocalCluster, tmp_path: Path
) -> None:
    address = ",".join(members.client_addresses())
    files = written(tmp_path, "one")
    with Client(members.client_addresses()) as client:
        client.set("plain", b"\0\0\0\0\xff\xff\xff\xf5\0\0\0\0\0\0\0\1"[4:], b"\0\0\0\0")
        with pytest.raises(ConfigError, match=r"'plain' takes no part in transactions.*transactional"):
            load(spark, files, "plain", "id", address=address, mode="overwrite", transaction_rows=10)
        assert client.size("plain") == 1, "and nothing is cleared"
    with pytest.raises(ConfigError, match="write=upsert only"):
        load(spark, files, "rows", "id", address=address, insert_only=True, transaction_rows=10)
    for wrong in (0, 10_001):
        with pytest.raises(ConfigError, match="transactionRows is a whole number from 1 to 10000"):
            load(spark, files, "rows", "id", address=address, transaction_rows=wrong)
    told = CliRunner().invoke(
        holdfast, ["load", files, "--map", "rows", "--key", "id", "--transaction-rows", "0"]
    )
    assert (told.exit_code, "--transaction-rows" in told.output) == (2, True)


def test_the_data_source_takes_the_option_too(spark: SparkSession, members: LocalCluster) -> None:
    address = ",".join(members.client_addresses())
    frame = spark.range(0, 1000, 1, 2).selectExpr("id", "id % 3 + 100 as seconds")
    options = {"address": address, "key": "id", "transactionRows": "300", "ttlColumn": "seconds"}
    frame.write.format("holdfast").options(**options).mode("append").save("frame")
    with Client(members.client_addresses()) as client:
        assert client.size("frame") == 1000
