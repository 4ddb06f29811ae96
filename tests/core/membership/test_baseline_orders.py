"""What the baseline would be after an order, and why an order is refused."""

from __future__ import annotations

import pytest
from tests.core.membership.one_member import A, B, C, D, info, view

from holdfast.core.membership.baseline_orders import BaselineChange, Owners, owners_wanted
from holdfast.core.model.baseline import FIXED, Baseline, BaselineMember
from holdfast.core.model.views import View
from holdfast.errors import Refused

SET, ADD, REMOVE, AUTO = BaselineChange.SET, BaselineChange.ADD, BaselineChange.REMOVE, BaselineChange.AUTO
LITE = info("e", lite=True)


def name(letter: str) -> str:
    return f"name-{letter}"


def there(members: str, baseline: str | None, adjust_ms: int = 5000) -> View:
    """A view of members a to d, and the lite one e; a baseline of these."""
    known = {"a": A, "b": B, "c": C, "d": D, "e": LITE}
    owning = (
        Baseline(tuple(BaselineMember(name(letter)) for letter in baseline), adjust_ms, 1, ("x",))
        if baseline is not None
        else None
    )
    return view(*(known[letter] for letter in members), baseline=owning)


@pytest.mark.parametrize(
    ("members", "baseline", "change", "names", "wanted"),
    [
        # Set: who is named, or who is here; not adjusted by itself any more.
        ("abc", None, SET, "", ("abc", FIXED)),
        ("abce", None, SET, "", ("abc", FIXED)),
        ("abc", "ab", SET, "", ("abc", FIXED)),
        ("abc", "ab", SET, "abc", ("abc", FIXED)),
        ("ab", "abc", SET, "abc", ("abc", FIXED)),
        ("ab", "abc", SET, "ab", ("ab", FIXED)),
        # Add and remove: the time of adjusting stays.
        ("abc", "ab", ADD, "c", ("abc", 5000)),
        ("abcd", "ab", ADD, "cd", ("abcd", 5000)),
        ("abc", "abc", ADD, "c", ("abc", 5000)),
        ("ab", "abc", REMOVE, "c", ("ab", 5000)),
        ("ab", "abcd", REMOVE, "cd", ("ab", 5000)),
        # Auto: the same ones.
        ("abc", None, AUTO, "", ("abc", 777)),
        ("abce", None, AUTO, "", ("abc", 777)),
        ("ab", "abc", AUTO, "", ("abc", 777)),
    ],
)
def test_the_baseline_after_an_order(
    members: str, baseline: str | None, change: BaselineChange, names: str, wanted: tuple[str, int]
) -> None:
    owners = owners_wanted(there(members, baseline), change, [name(letter) for letter in names], 777)
    assert owners == Owners(frozenset(map(name, wanted[0])), wanted[1])


NO_BASELINE = "there is no baseline: every member owns data as soon as it joins. "
DRAIN = "is present and holds data: drain it first (holdfast member drain {0}:5702), then "


@pytest.mark.parametrize(
    ("members", "baseline", "change", "names", "why"),
    [
        ("abc", "ab", ADD, "", "name members, as `holdfast cluster baseline show` does"),
        ("abc", "ab", REMOVE, "", "name members, as `holdfast cluster baseline show` does"),
        (
            "abc",
            None,
            ADD,
            "c",
            NO_BASELINE + "Set one first: holdfast cluster baseline set",
        ),
        ("abc", None, REMOVE, "c", NO_BASELINE),
        ("abc", "ab", ADD, "cd", "'name-d' is not a present data member; these are: name-a, name-b, name-c"),
        ("abe", "ab", ADD, "e", "'name-e' is not a present data member; these are: name-a, name-b"),
        ("ab", "abc", ADD, "c", "'name-c' is not a present data member; these are: name-a, name-b"),
        ("abc", "ab", REMOVE, "c", "'name-c' is not in the baseline; these are: name-a, name-b"),
        (
            "abc",
            "abd",
            SET,
            "abx",
            "'name-x' is not a present data member; these are: name-a, name-b, name-c, name-d",
        ),
        ("abe", "ab", SET, "e", "'name-e' is not a present data member; these are: name-a, name-b"),
        ("e", None, SET, "x", "'name-x' is not a present data member; these are: none"),
        ("e", None, SET, "", "no present member would own data"),
        ("a", "abc", SET, "bc", "no present member would own data"),
        ("abc", "abc", SET, "ab", f"name-c {DRAIN.format('c')}"),
        ("abc", "abc", REMOVE, "b", f"name-b {DRAIN.format('b')}"),
        ("abc", None, SET, "ac", f"name-b {DRAIN.format('b')}"),
    ],
)
def test_an_order_that_is_refused_says_what_to_do(
    members: str, baseline: str | None, change: BaselineChange, names: str, why: str
) -> None:
    with pytest.raises(Refused) as refused:
        owners_wanted(there(members, baseline), change, [name(letter) for letter in names], 777)
    assert str(refused.value).startswith(why)


@pytest.mark.parametrize(
    ("baseline", "adjust_ms", "so"),
    [("ab", 5000, True), ("ab", 5001, False), ("abc", 5000, False), (None, 5000, False)],
)
def test_whether_owners_are_those_of_a_view(baseline: str | None, adjust_ms: int, so: bool) -> None:
    assert Owners(frozenset({name("a"), name("b")}), adjust_ms).are_in(there("abc", baseline)) is so
