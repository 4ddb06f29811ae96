"""The list of cases that run at night only."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.costly_cases import choose, listed

ROOT = Path(__file__).parents[1]


def test_the_cheapest_case_of_each_test_stays_by_day() -> None:
    costs = {
        "tests/lab/test_a.py::test_it[1]": 4.0,
        "tests/lab/test_a.py::test_it[2]": 2.0,
        "tests/lab/test_a.py::test_it[3]": 0.1,
        "tests/lab/test_a.py::test_it[4]": 0.2,
        "tests/lab/test_a.py::test_one": 9.0,
        "tests/lab/test_a.py::test_lies_are_noticed[1]": 4.0,
        "tests/lab/test_a.py::test_lies_are_noticed[2]": 4.0,
        "tests/cli/test_a.py::test_it[1]": 4.0,
        "tests/cli/test_a.py::test_it[2]": 4.0,
    }
    assert choose(costs) == ["tests/lab/test_a.py::test_it[1]", "tests/lab/test_a.py::test_it[2]"]


def test_listed_cases_are_slow_and_each_test_has_another_one(request: pytest.FixtureRequest) -> None:
    """Of those files that were collected."""
    assert all((ROOT / case.partition("::")[0]).is_file() for case in listed())
    collected = {item.nodeid for item in request.session.items}
    assert not listed() & collected


def test_the_list_is_short_enough_to_read() -> None:
    assert 0 < len(listed()) < 400
