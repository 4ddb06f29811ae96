"""Processor seconds of each file of tests, as `pytest -n 0 --record-costs` measured them.

Files that take long begin first where several processes share the tests (conftest.py), and `make quick` chooses by
them (affected.py). A file without a record is estimated by its text.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "costs.toml"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STARTS_PROGRAMS = re.compile(r"\bLocalCluster\b|\bCOMMAND\b|\bsys\.executable\b|\brun_program\b|\bKeepers\b")
ESTIMATES_S = {
    re.compile(r"pytest\.mark\.spark\b"): 10.0,
    STARTS_PROGRAMS: 5.0,
    re.compile(r"from holdfast_lab\.sim\b|from tests\.lab\.sim\b"): 4.0,
}
"""Processor seconds of a file with such a text; the first that fits counts."""
ESTIMATE_S = 0.5


@cache
def recorded() -> dict[str, float]:
    return tomllib.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def estimate(text: str) -> float:
    """About how many processor seconds a file with this text takes."""
    return next((cost for pattern, cost in ESTIMATES_S.items() if pattern.search(text)), ESTIMATE_S)


@cache
def cost(file: str) -> float:
    """Processor seconds of `tests/cli/test_plan.py`."""
    found = recorded().get(file)
    return estimate((ROOT / file).read_text(encoding="utf-8")) if found is None else found


def used_s() -> float:
    """Processor time of this process and of all that it has started, those that have ended included."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        pid = left.pop()
        total += ticks.get(pid, 0)
        left += children.get(pid, [])
    return total / TICKS_PER_S


class CostRecorder:
    """A plugin of pytest: adds what each file used to the record."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._used_s = 0.0

    def pytest_collection_finish(self) -> None:
        self._used_s = used_s()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        now_s = used_s()
        self.found[nodeid.partition("::")[0]] += max(0.0, now_s - self._used_s)  # type: ignore[assignment]
        self._used_s = now_s

    def pytest_sessionfinish(self) -> None:
        costs = recorded() | {file: round(found, 1) for file, found in self.found.items()}
        lines = [f'"{file}" = {cost}\n' for file, cost in sorted(costs.items()) if (ROOT / file).exists()]
        RECORD.write_text("# Written by `pytest -n 0 --record-costs`.\n" + "".join(lines), encoding="utf-8")
