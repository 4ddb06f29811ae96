"""The benches of journal, recovery and return: what they make of their figures, and that Redis is loaded as told."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests import statuses

from holdfast.config import load
from holdfast.core.model.member_status import MemberStatus
from holdfast_lab.bench import bulk, journal, recovery, rejoin, report, systems
from holdfast_lab.bench.load import Sample
from holdfast_lab.bench.run import Measured

# -- journal


def measured(per_second: float, *, busy: float = 0.5, others: float = 0.0) -> Measured:
    return Measured([Sample(int(per_second), 1.0, 100, 200, 300, busy)], [10.0], [others])


@pytest.fixture
def results() -> dict[tuple[str, str], Measured]:
    rates = {"off": 1000.0, "lazy": 800.0, "sync": 200.0}
    found = {}
    for kind in journal.HOLDFAST + journal.REDIS:
        for factor, case in zip((1, 3), journal.CASES, strict=True):
            found[case.title, kind.name] = measured(rates[kind.level] * factor * (2 if kind.redis else 1))
    return found


def test_each_journal_is_compared_with_what_is_as_safe(results: dict[tuple[str, str], Measured]) -> None:
    kinds = journal.HOLDFAST + journal.REDIS
    assert journal.ratio_rows(kinds, results) == [
        ["Holdfast, journal off / Redis, appendonly no", "0.50", "0.50"],
        ["Holdfast, journal lazy / Redis, appendonly everysec", "0.50", "0.50"],
        ["Holdfast, journal sync / Redis, appendonly always", "0.50", "0.50"],
        ["Holdfast, journal lazy / Holdfast, journal off", "0.80", "0.80"],
        ["Holdfast, journal sync / Holdfast, journal off", "0.20", "0.20"],
    ]
    assert [row[:2] + row[3:4] for row in journal.rate_rows(kinds, results)][2:4] == [
        ["Holdfast, journal sync", "200", "600"],
        ["Redis, appendonly no", "2,000", "6,000"],
    ]


def test_what_spoils_the_rates_is_said(results: dict[tuple[str, str], Measured]) -> None:
    assert journal.remarks(results) == []
    results[journal.CASES[0].title, "Holdfast, journal off"] = measured(1, busy=0.99, others=0.3)
    said = " ".join(journal.remarks(results))
    assert "generator itself was the limit for: set, one in flight on Holdfast, journal off (99%)" in said
    assert "part of the servers' core meanwhile**: 0% to 30%, in the median 0%" in said


# -- recovery


def test_recovery_is_compared_by_speed() -> None:
    plan = recovery.Plan(entries=1_000_000, value_bytes=984)
    starts = {
        "Holdfast": [recovery.Start(seconds, 3.0) for seconds in (4.0, 40.0, 3.0)],
        "Redis": [recovery.Start(2.0, 1.0)],
    }
    ours, theirs = recovery.rows_of(plan, starts)
    assert ours == ["Holdfast", "4.0", "250", "3.0", "4.0, 40.0, 3.0", ""]
    assert theirs == ["Redis", "2.0", "500", "1.0", "2.0", "0.50 of it"]
    assert plan.first == 900_000


def test_only_the_newest_checkpoint_of_a_partition_counts(tmp_path: Path) -> None:
    for name, size in {
        "p00001-000000000002-ab.parquet": 10,
        "p00001-000000000010-aa.parquet": 20,
        "p00002-000000000001-ff.parquet": 5,
        "j000000000001.seg": 7,
        "identity.json": 100,
    }.items():
        (tmp_path / name).write_bytes(bytes(size))
    assert recovery.sizes(tmp_path) == (25, 7)


def test_without_checkpoints_nothing_is_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PATIENCE_S", 0.3)
    with pytest.raises(click.ClickException, match="checkpoints"):
        recovery.wait_still(tmp_path)


@pytest.mark.skipif(systems.redis_program() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("append", [False, True])
def test_redis_loads_its_own_files(tmp_path: Path, *, append: bool) -> None:
    plan = recovery.Plan(entries=9000, value_bytes=100)
    recovery.fill_redis(plan, tmp_path)
    assert recovery.start_redis(plan, tmp_path, append=append).seconds > 0
    with pytest.raises(click.ClickException, match="not loaded all"):
        recovery.start_redis(recovery.Plan(entries=9001), tmp_path, append=append)


def test_neighbours_have_different_values_of_the_size_that_was_asked_for() -> None:
    values = [bulk.value_of(number, 1024) for number in range(0, 1_000_000, 997)]
    assert {len(value) for value in values} == {1024}
    assert len(set(values)) == len(values)
    assert len(bulk.key_of(999_999)) == bulk.KEY_BYTES


# -- return


def status(total: int, **by_kind: int) -> MemberStatus:
    kinds = {f"{kind}_bytes": count for kind, count in by_kind.items()}
    return statuses.status(migrations={"sent_bytes": total}, replicas=kinds)


def test_what_was_sent_is_counted_over_all_members() -> None:
    before = rejoin.sent([status(100, history=0, ranges=0, full=100), status(0, history=0, ranges=0, full=0)])
    after = rejoin.sent([status(110, history=10, ranges=0, full=100), status(7, history=2, ranges=5, full=0)])
    assert after.since(before) == rejoin.Sent(17, {"history": 12, "ranges": 5, "full": 0})


def test_the_share_of_the_bytes_is_held_against_the_aim() -> None:
    files = rejoin.Back(20_000_000, 3.0, {"history": 20_000_000, "full": 0})
    empty = rejoin.Back(1_000_000_000, 6.0, {"history": 0, "full": 1_000_000_000})
    amount, seconds = rejoin.rows_of("kept", files, empty)
    assert amount == ["kept: MB sent", "20.0 (history 20.0)", "1,000.0 (full 1,000.0)", "2.0%"]
    assert seconds == ["kept: seconds until whole", "3.0", "6.0", "50%"]
    files.bytes_sent *= 2
    assert rejoin.rows_of("kept", files, empty)[0][3] == "4.0% (aim: 3%)"


@pytest.mark.parametrize("delay", [True, False])
def test_the_place_is_kept_for_longer_than_the_absence(*, delay: bool) -> None:
    text = rejoin.Plan(away_s=60).config(delay=delay)
    settings = load(text, {}, {"persistence.directory": "files"})
    assert (settings.map("bench").backups, settings.map("bench").journal) == (1, "sync")
    assert (settings.partitions.rebalance_delay_ms > 60_000) == delay


# -- the page


def test_each_bench_writes_its_own_part(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n\n<!-- bench: begin (x) -->\nold\n<!-- bench: end -->\n\nafter\n")
    report.write_part(page, "bench journal", "first", "python -m holdfast_lab.bench.journal")
    report.write_part(page, "bench recovery", "second", "python -m holdfast_lab.bench.recovery")
    report.write_part(page, "bench journal", "third", "python -m holdfast_lab.bench.journal --quick")
    text = page.read_text()
    assert "first" not in text
    assert text.index("old") < text.index("after") < text.index("third") < text.index("second")
    assert text.startswith("before\n\n<!-- bench: begin (x) -->")


def test_the_command_names_what_is_not_as_usual() -> None:
    usual = {"entries": 10, "value_bytes": 5, "rounds": 3}
    assert report.command("holdfast_lab.bench.x", usual, usual) == "python -m holdfast_lab.bench.x"
    assert (
        report.command("holdfast_lab.bench.x", usual | {"value_bytes": 7}, usual)
        == "python -m holdfast_lab.bench.x --value-bytes 7"
    )
