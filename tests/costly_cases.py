"""Cases that run at night only, because another case of the same test is cheaper: `python -m tests.costly_cases FILE`.

FILE has a line `SECONDS NODEID` for each test that was run. The list is tests/costly_cases.txt. A test without cases is
never in it, and neither is one whose cases are different rules or lies, which must each be found by day.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
FOLDERS = ("tests/lab/", "tests/core/", "tests/cluster/", "tests/wire/")
LEAST_S = 0.3
DIFFERENT = re.compile(r"without|rule|lie|finds|found|noticed|named|broken|mutant")
"""Words in the names of tests whose cases are different rules or lies."""


def choose(costs: Mapping[str, float]) -> list[str]:
    """All cases but the cheapest of each test, if they take `LEAST_S` or more. `costs`: seconds of each node id."""
    tests: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for case, seconds in costs.items():
        tests[case.partition("[")[0]].append((seconds, case))
    return sorted(
        case
        for test, cases in tests.items()
        if test.startswith(FOLDERS) and not DIFFERENT.search(test.partition("::")[2])
        for seconds, case in sorted(cases)[1:]
        if seconds >= LEAST_S
    )


@cache
def listed() -> frozenset[str]:
    return frozenset(LIST.read_text(encoding="utf-8").splitlines())


def main(files: Iterable[str]) -> None:
    costs: dict[str, float] = {}
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            seconds, _, case = line.partition(" ")
            costs[case] = float(seconds)
    LIST.write_text("".join(f"{case}\n" for case in choose(costs)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
