"""The four figures of source 004, with the counters that it describes beside those that members have.

`pytest tests/lab/sim/transaction_scenarios/test_counters_of_the_source.py --rewrite` writes the table of
docs/transactions.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.core.model.source_counter import SourceCounter
from tests.lab.sim.transaction_scenarios.scenario_stage import ToldTransaction, TransactingStage
from tests.lab.sim.transaction_scenarios.test_a_figures import KEYS, PARTITION, absent

from holdfast.core.model.transaction_orders import TransactionFate
from holdfast.core.model.update_counter import UpdateCounter
from holdfast_lab.sim.workload import MAP

PAGE = Path(__file__).parents[4] / "docs" / "transactions.md"
BEGIN = "<!-- counters of the source: begin (written by a test, `--rewrite`) -->\n"
END = "<!-- counters of the source: end -->\n"
TX1, TX2 = 3, 2
"""Entries that the transactions of the source write in the partition."""


class Row(NamedTuple):
    figure: str
    moment: str
    source: str
    here: str


def shown(counter: SourceCounter | UpdateCounter) -> str:
    ranges = "".join(f", ({start}, {count})" for start, count in counter.ranges)
    return f"LWM {counter.lwm}, HWM {counter.hwm}{ranges}"


def here(stage: TransactingStage, *hosts: int) -> str:
    """The counter of the map on these hosts."""
    found = set()
    for host in hosts:
        held = stage.member(host).copies.held[PARTITION].maps.get(MAP)
        found.add(shown(held.updates if held is not None else UpdateCounter()))
    assert len(found) == 1, "all copies stand at the same number"
    return found.pop()


def two(stage: TransactingStage, near: int, other: int) -> tuple[ToldTransaction, ToldTransaction]:
    first = stage.begin(near, stage.values([*KEYS[:TX1], stage.elsewhere(other, 2)[0]]))
    second = stage.begin(near, stage.values([*KEYS[TX1 : TX1 + TX2], stage.elsewhere(near, 2)[1]]))
    return first, second


def reserved() -> tuple[SourceCounter, tuple[int, int], tuple[int, int]]:
    """A primary of the source that has prepared both transactions, and their ranges."""
    primary = SourceCounter()
    return primary, primary.reserve(TX1), primary.reserve(TX2)


def figure_1() -> list[Row]:
    """A backup applies the second transaction before the first."""
    stage = TransactingStage(5)
    near, holders = stage.bystander(), stage.holders()
    first, second = two(stage, near, near)
    primary, tx1, tx2 = reserved()
    backup = SourceCounter()
    stage.hold_commits(near)
    stage.commit(first, second)
    stage.soon(lambda: stage.prepared(first) and stage.prepared(second))
    rows = [
        Row(
            "1",
            "both are prepared",
            f"primary {shown(primary)}; backup {shown(backup)}",
            here(stage, *holders),
        )
    ]
    stage = TransactingStage(5)
    near, holders = stage.bystander(), stage.holders()
    first, second = two(stage, near, near)
    stage.commit(second)
    stage.answered(second)
    primary.update(*tx2)
    backup.update(*tx2)
    rows.append(Row("1", "Tx2 is committed", f"{shown(primary)}", here(stage, *holders)))
    assert (primary.lwm, primary.ranges) == (backup.lwm, backup.ranges)
    stage.commit(first)
    stage.answered(first)
    primary.update(*tx1)
    rows.append(Row("1", "Tx1 is committed", shown(primary), here(stage, *holders)))
    stage.whole()
    return rows


def figure_2() -> list[Row]:
    """A member comes back after 20 updates."""
    stage, _, gone = absent(history=True)
    stands = stage.counter(stage.holders()[0])
    stage.start(gone)
    stage.rest()
    [(how, why), *_] = stage.synchronised(gone)
    assert (how, why) == ("history", f"20 updates after {stands - 20} were missed")
    source = SourceCounter(stands - 20)
    missing = stands - source.lwm
    row = Row(
        "2",
        f"a member with LWM {source.lwm} returns, others have {stands}",
        f"{missing} updates are sent from the log",
        f"{how}: {why}",
    )
    stage.whole()
    return [row]


def crashed(reached: int) -> tuple[str, str]:
    """Tx2 is committed; Tx1 is prepared on so many backups when its primary and its coordinator die. Returns the
    counter on the backups before that, and on all copies after the recovery.
    """
    stage = TransactingStage(5)
    near = stage.bystander()
    one, *backups = stage.holders()
    other = next(host for host in range(5) if host not in (near, one, *backups[:reached]))
    first, second = two(stage, near, other)
    stage.commit(second)
    stage.answered(second)
    stage.cut_off(one, *backups[reached:])
    stage.cut_off(near, other)
    stage.commit(first)
    stage.soon(lambda: stage.prepared(first, one, *backups[:reached]))
    found = here(stage, *backups)
    stage.end("kill", one, near)
    stage.heal()
    stage.gone(one, near)
    stage.wait(20)
    assert stage.there(first, second) == [False, True]
    assert first.fate is not TransactionFate.DONE
    return found, here(stage, *stage.holders())


def figure_3() -> list[Row]:
    """Tx2 is committed before Tx1 is prepared on a backup, and the primary fails."""
    found, recovered = crashed(0)
    _, _, tx2 = reserved()
    backup = SourceCounter()
    backup.update(*tx2)
    before = shown(backup)
    [gap] = backup.finalise()
    return [
        Row("3", "the primary fails", before, found),
        Row("3", "after the recovery", f"the gap {gap} is closed: {shown(backup)}", recovered),
    ]


def figure_4() -> list[Row]:
    """Tx1 is prepared on one backup alone, and the primary fails."""
    found, recovered = crashed(1)
    _, _, tx2 = reserved()
    knows, lacks = SourceCounter(), SourceCounter()
    for backup in (knows, lacks):
        backup.update(*tx2)
    before = f"{shown(knows)}; one of them knows the range (0, {TX1}) of Tx1"
    knows.finalise()
    lacks.set_absolute(knows.lwm)
    assert shown(knows) == shown(lacks)
    return [
        Row("4", "the primary fails", before, found),
        Row("4", "after the recovery", f"a counter update makes both {shown(knows)}", recovered),
    ]


def table() -> str:
    rows = [*figure_1(), *figure_2(), *figure_3(), *figure_4()]
    lines = ["| figure | moment | as the source counts | here, on all copies |", "|---|---|---|---|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def test_the_page_has_the_counters_of_a_real_run(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = before + BEGIN + table() + END + after
    if request.config.getoption("--rewrite"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "write it again: --rewrite"
