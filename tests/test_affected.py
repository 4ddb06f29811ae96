"""The tests that a change can reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.affected import (
    BUDGET_S,
    ESTIMATE_S,
    PROGRAM,
    changed_modules,
    distances,
    estimate,
    imported,
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
    assert reached[order[0]] == 1
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


def test_the_nearest_files_are_taken_and_changed_ones_in_any_case(tmp_path: Path) -> None:
    slow, quick = "from holdfast_lab.sim.run import simulate", "def test_it(): ..."
    assert estimate(quick) == ESTIMATE_S < estimate(slow) < BUDGET_S
    for name, text in (("changed", slow), ("near", quick), ("middle", slow), ("far", quick)):
        (tmp_path / name).write_text(text)
    reached = {"changed": 0, "near": 1, "middle": 2, "far": 3}
    assert within(reached, budget_s=estimate(slow) + 2 * ESTIMATE_S, root=tmp_path) == [
        "changed",
        "near",
        "far",
    ]
    assert within(reached, budget_s=0, root=tmp_path) == ["changed"]
