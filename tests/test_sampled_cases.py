"""Which cases of a test with several axes are quick."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from tests.sampled_cases import covering, is_needed, sampled

CASES = list(product(range(3), range(2), range(2)))


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2, 2), (4, 3, 2, 2), (5,)], ids=str)
@pytest.mark.parametrize("together", [1, 2])
def test_each_choice_of_values_occurs(sizes: tuple[int, ...], together: int) -> None:
    found = covering(sizes, together)
    for axes in combinations(range(len(sizes)), together):
        for values in product(*(range(sizes[axis]) for axis in axes)):
            assert any(tuple(case[axis] for axis in axes) == values for case in found)


def test_there_are_few_of_them() -> None:
    assert covering((3, 2, 2), 1) == {(0, 0, 0), (1, 1, 1), (2, 0, 0)}
    assert len(covering((3, 2, 2), 2)) == 6
    assert len(covering((4, 3, 2, 2), 2)) < 16


@pytest.mark.covering(1)
@pytest.mark.parametrize(("one", "other"), [(0, 0), (1, 0), (2, 0)])
@pytest.mark.parametrize("flag", [False, True])
def test_a_case_that_is_not_needed_is_slow(
    one: int, other: int, flag: bool, request: pytest.FixtureRequest
) -> None:
    needed = is_needed(request.node, 1)
    assert needed is ((one, flag) in {(0, False), (1, True), (2, False)})
    assert needed is (request.node.get_closest_marker("slow") is None)


def test_every_second_case_of_a_sample_is_quick() -> None:
    found = sampled(CASES, 2)
    assert [one for one in found if one in CASES] == CASES[::2]
