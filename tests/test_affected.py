"""The tests that a change can reach."""

from __future__ import annotations

import pytest
from tests.affected import (
    PROGRAM,
    changed_modules,
    distances,
    imported,
    names,
    reach,
    within,
)

STORE = "src/holdfast/core/store/replica.py"


@pytest.fixture(scope="module")
def reached() -> dict[str, int]:
    return reach([STORE])


def test_files_that_import_a_module_are_reached_and_others_are_not(reached: dict[str, int]) -> None:
    assert reached["tests/core/store/test_digests_kept.py"] < reached["tests/lab/sim/test_simulation.py"]
    assert "tests/core/raft/test_group.py" not in reached


def test_files_that_start_members_are_reached_though_they_import_none(reached: dict[str, int]) -> None:
    assert "tests/cluster/test_dns_seeds.py" in reached


def test_a_command_is_reached_through_the_table_that_names_it() -> None:
    assert "tests/cli/test_commands.py" in reach(["src/holdfast/cli/zone.py"])


def test_near_and_cheap_files_come_first(reached: dict[str, int]) -> None:
    order = list(reached)
    assert order.index("tests/core/store/test_digests_kept.py") < order.index(
        "tests/cluster/test_dns_seeds.py"
    )


def test_distances_are_numbers_of_imports_on_the_shortest_way() -> None:
    importers = {"c": {"b", "test"}, "b": {"a"}, "a": {"test", "c"}}
    assert distances(["c"], importers) == {"c": 0, "b": 1, "test": 1, "a": 2}
    assert distances(["test"], importers) == {"test": 0}


def test_what_a_file_of_tests_imports() -> None:
    modules = {"holdfast.core.member", "holdfast.core", "tests.cluster.crew"}
    text = "from holdfast.core import member, other\nfrom tests.cluster.crew import Crew\nimport holdfast.core.member\n"
    folders = {"tests.cluster.conftest", "tests.conftest"}
    assert imported("tests/cluster/test_a.py", text, modules) == modules | folders
    assert "holdfast.runtime.in_process.embedded" in imported(
        "tests/a.py", "from holdfast import Member", modules
    )
    assert imported("tests/cluster/test_a.py", "with LocalCluster(3): ...", modules) == {*PROGRAM, *folders}


def test_a_file_that_is_no_module_may_be_part_of_each_beside_it() -> None:
    modules = {"holdfast.a.b", "holdfast.a.c", "holdfast.d", "tests.test_x"}
    assert changed_modules(["src/holdfast/a/table.pyx"], modules) == {"holdfast.a.b", "holdfast.a.c"}
    assert changed_modules(["src/holdfast/a/b.py", "tests/test_x.py"], modules) == {
        "holdfast.a.b",
        "tests.test_x",
    }
    assert changed_modules(["README.md"], modules) == set()


def test_a_page_reaches_the_tests_that_name_it_or_its_folder() -> None:
    text = 'PAGE = ROOT / "docs" / "guarantees.md"; SCHEMAS = ROOT / "docs" / "schemas"'
    assert names(text, "docs/guarantees.md")
    assert names(text, "docs/schemas/plan.json")
    assert not names(text, "docs/operating.md")
    assert not names(text, "src/holdfast/core/member.py")


def test_the_nearest_files_are_taken_and_changed_ones_in_any_case() -> None:
    costs = {"changed": 9.0, "near": 1.0, "middle": 9.0, "far": 1.0}
    reached = {"changed": 0, "near": 1, "middle": 2, "far": 3}
    assert within(reached, 11.0, costs.__getitem__) == ["changed", "near", "far"]
    assert within(reached, 0.0, costs.__getitem__) == ["changed"]
