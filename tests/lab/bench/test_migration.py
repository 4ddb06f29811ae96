"""What the bench of migrations reads from logs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from holdfast_lab.bench.migration import moved

EARLIER = "2026-11-21 05:59:00,000 INFO rebalance finished completed=99 failed=9 elapsed_ms=5\n"
FIRST = """\
2026-11-21 06:00:34,426 INFO view number=2 state=active master=m1 members=['m1', 'm2'] left=[]
2026-11-21 06:00:34,430 INFO rebalance planned migrations=10
2026-11-21 06:00:34,530 INFO rebalance finished completed=4 failed=1 elapsed_ms=100
2026-11-21 06:00:34,530 INFO rebalance planned migrations=6
"""
SECOND = "2026-11-21 06:00:36,430 INFO rebalance finished completed=6 failed=0 elapsed_ms=900\n"


def cluster(folder: Path, *logs: str) -> Any:
    members = []
    for number, text in enumerate(logs, 1):
        log = folder / f"m{number}.log"
        log.write_text(text)
        members.append(SimpleNamespace(name=f"m{number}", log=log))
    return cast("Any", SimpleNamespace(members=members))


def test_a_rebalance_is_counted_over_all_its_plans_and_masters(tmp_path: Path) -> None:
    found = moved(cluster(tmp_path, EARLIER + FIRST, SECOND), {"m1": len(EARLIER)})
    assert (found.migrations, found.failed, found.seconds) == (10, 1, 2.0)
    assert found.per_second == 5


def test_without_an_end_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="no log"):
        moved(cluster(tmp_path, EARLIER), {"m1": len(EARLIER)})
