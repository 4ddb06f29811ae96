"""Transactions beside other systems: the tables, and the load program in Java against Holdfast alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
from hazelcast import HazelcastClient

from holdfast.config.addresses import format_address
from holdfast_lab.bench import java_load, systems, transactions_beside
from holdfast_lab.bench.java_load import LoadSample
from holdfast_lab.bench.transactions_beside import (
    FULL,
    Apart,
    Hot,
    Samples,
    hot_rows,
    rate_rows,
    ratio_rows,
    remarks,
    systems_of,
)

PROGRAM_S = 300
SAMPLE = LoadSample(100.0, 5.0, 9.0, 300.0, 0.5, 200, 0, 0, {}, 400, 0, [])


def found(**kinds: float) -> Samples:
    """Samples of all loads: the rates of the systems' transactions; puts are four times as fast, and cost a quarter."""
    loads: Samples = {}
    for name, per_second in kinds.items():
        system = name.capitalize()
        puts, *transactions = transactions_beside.KINDS[system]
        for threads in FULL.threads:
            for keys in FULL.keys:
                put = replace(SAMPLE, per_second=4 * per_second, cpu_us=75.0)
                loads[Apart(keys, threads, system, puts)] = [put, put]
                for kind in transactions:
                    one = replace(SAMPLE, per_second=per_second)
                    loads[Apart(keys, threads, system, kind)] = [one, one]
        for order in transactions_beside.ORDERS:
            for kind in transactions:
                loads[Hot(order, system, kind)] = [replace(SAMPLE, per_second=per_second, rolled_back=600)]
    return loads


def test_each_kind_has_rates_times_and_its_cost_in_puts() -> None:
    rows = rate_rows(found(holdfast=100.0, ignite=50.0), 2, (1, 8))
    assert rows[:2] == [
        ["Holdfast, puts", *(["400", "5.0 / 9.0", "75 (1.0)"] * 2)],
        ["Holdfast, two-phase", *(["100", "5.0 / 9.0", "300 (4.0)"] * 2)],
    ]
    assert [row[0] for row in rows[2:]] == ["Ignite, puts", "Ignite, pessimistic", "Ignite, optimistic"]


def test_holdfast_is_compared_with_each_other_kind() -> None:
    head, rows = ratio_rows(found(holdfast=100.0, hazelcast=50.0), FULL)
    assert head == ["Holdfast", "/s", "/ Hazelcast, one-phase", "/ Hazelcast, two-phase"]
    assert rows[0] == ["1 key, 1 thread", "100", *["2.00 (2.00 to 2.00)"] * 2]
    assert rows[-1] == ["conflicts, any order", "100", *["2.00 (2.00 to 2.00)"] * 2]
    assert len(rows) == 11


def test_a_system_that_committed_nothing_has_no_ratio() -> None:
    _, rows = ratio_rows(found(holdfast=100.0, hazelcast=0.0), FULL)
    assert rows[0][2:] == ["-", "-"]


def test_conflicts_show_the_share_of_attempts_that_were_rolled_back() -> None:
    assert hot_rows(found(holdfast=100.0))[0] == [
        "ascending order: Holdfast, two-phase", "100", "75.0 %", "5.0 / 9.0", "300",
    ]  # fmt: skip


def test_wrong_entries_are_reported() -> None:
    loads = found(holdfast=100.0)
    assert len(remarks(loads)) == 1
    assert remarks(loads)[0].startswith("Holdfast: 7,600 transactions and groups of puts were committed")
    assert "all as they should be" in remarks(loads)[0]
    case = Hot("any", "Holdfast", "two-phase")
    loads[case] = [replace(SAMPLE, wrong=1, examples=["hot-1: 3 additions are there"])]
    assert "**1 of them were wrong**" in remarks(loads)[0]
    assert remarks(loads)[1:] == [f"Wrong in {case}: hot-1: 3 additions are there"]


def test_systems_are_chosen_by_name() -> None:
    assert systems_of(None, None, "ignite, Holdfast") == ["Holdfast", "Ignite"]
    with pytest.raises(click.BadParameter, match="no system is called 'redis'"):
        systems_of(None, None, "holdfast,redis")
    with pytest.raises(click.BadParameter, match="name it"):
        systems_of(None, None, "ignite")


@pytest.fixture
def java() -> None:
    if problem := java_load.build_problem():
        pytest.skip(problem)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.usefixtures("java")
def test_a_quick_run_of_holdfast_alone_writes_its_part(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    command = [sys.executable, "-m", transactions_beside.MODULE, "--quick", "--systems", "holdfast"]
    done = subprocess.run(
        [*command, "--out", str(page)], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert f"<!-- {transactions_beside.PART}: begin" in text
    (transactions,) = [line for line in text.splitlines() if line.startswith("| Holdfast, two-phase |")]
    assert int(transactions.split("|")[2].replace(",", "")) > 0
    assert "all as they should be" in text


@pytest.mark.interop
@pytest.mark.usefixtures("java")
def test_the_load_notices_what_was_changed_behind_its_back(tmp_path: Path) -> None:
    with systems.holdfast(2, 1) as system, java_load.java_load(system, tmp_path) as load:
        options = {"kind": "two-phase", "threads": 4, "keys": 2, "order": "ascending", "timeout_ms": 30_000}
        right = load.run("hot", 0.2, **options)
        assert (right.wrong, right.checked) == (0, 10)
        assert right.committed > 0
        client = HazelcastClient(cluster_members=[format_address(*system.addresses[0])])
        entries = client.get_map("transactions").blocking()
        entries.set("hot-000000000003", "7777777".zfill(100))
        entries.set("not one of them", "1")
        client.shutdown()
        wrong = load.run("hot", 0.2, **options)
        assert wrong.wrong == 2
        assert "additions are there" in wrong.examples[0]
        assert wrong.examples[1] == "the map has 16395 entries instead of 16394"
