"""The judge of balances finds what trying every choice of unknown transfers finds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_lab.check.bank import BalancesRead, BankVerdict, Transfer, judge
from holdfast_lab.check.serializability import TransactionOutcome

COMMITTED, ROLLED_BACK, UNKNOWN = TransactionOutcome
START = {"a": 10, "b": 10, "c": 10, "d": 0}


def transfer(text: str) -> Transfer:
    """`t1 ok a-5 b+5`: `ok`, `no` or `?`."""
    name, outcome, *changes = text.split()
    outcomes = {"ok": COMMITTED, "no": ROLLED_BACK, "?": UNKNOWN}
    return Transfer(name, outcomes[outcome], {change[0]: int(change[1:]) for change in changes})


def ends(final: Mapping[str, int], *transfers: str, negative: bool = False) -> BankVerdict:
    made = [transfer(text) for text in transfers]
    return judge(START, made, [], {**START, **final}, may_be_negative=negative)


def reads(balances: dict[str, int], *, negative: bool = False) -> list[str]:
    verdict = judge(START, [], [BalancesRead("r", balances)], START, may_be_negative=negative)
    assert verdict.undecided == []
    return verdict.problems


def test_every_read_shows_the_total() -> None:
    assert reads(START) == []
    assert reads({"a": 0, "b": 30, "c": 0, "d": 0}) == []
    assert reads({**START, "a": 11}) == ["r: the total is 31, and must be 30"]
    assert reads({**START, "a": 9}) == ["r: the total is 29, and must be 30"]


def test_a_read_shows_every_account_and_no_other() -> None:
    assert reads({"a": 10, "b": 10, "c": 10}) == ["r: account d is missing"]
    assert reads({"a": 10, "b": 10}) == ["r: account c is missing", "r: account d is missing"]
    assert reads({**START, "e": 0}) == ["r: e is no account"]


def test_no_balance_is_negative_where_that_is_forbidden() -> None:
    assert reads({**START, "a": 11, "d": -1}) == ["r: account d holds -1"]
    assert reads({**START, "a": 11, "d": -1}, negative=True) == []


def test_the_end_is_looked_at_like_a_read() -> None:
    assert judge(START, [], [], {"a": 10, "b": 10, "c": 10}).problems == ["the end: account d is missing"]
    assert judge(START, [], [], {"b": 10, "c": 10, "d": 0}).problems == ["the end: account a is missing"]
    assert judge(START, [], [], {**START, "a": 11, "d": -1}).problems[0] == "the end: account d holds -1"
    assert ends({"a": 11, "d": -1}, "t ok a+1 d-1").problems == ["the end: account d holds -1"]
    assert ends({"a": 11, "d": -1}, "t ok a+1 d-1", negative=True) == BankVerdict()
    assert ends({"a": 11}).problems[0] == "the end: the total is 31, and must be 30"


GOOD = {
    "nothing": ({}, []),
    "a committed transfer": ({"a": 5, "b": 15}, ["t ok a-5 b+5"]),
    "one that was rolled back": ({}, ["t no a-5 b+5"]),
    "an unknown one that happened": ({"a": 5, "b": 15}, ["t ? a-5 b+5"]),
    "an unknown one that did not": ({}, ["t ? a-5 b+5"]),
    "one of three accounts": ({"a": 5, "b": 12, "d": 3}, ["t ? a-5 b+2 d+3"]),
    "one of two between the same": ({"a": 7, "b": 13}, ["t ? a-5 b+5", "u ? a-3 b+3"]),
    "both of two between the same": ({"a": 2, "b": 18}, ["t ? a-5 b+5", "u ? a-3 b+3"]),
    "one there and one back": ({}, ["t ? a-5 b+5", "u ? a+5 b-5"]),
    "one of a ring": ({"b": 5, "c": 15}, ["t ? a-5 b+5", "u ? b-5 c+5", "v ? c-5 a+5"]),
    "groups that have no account in common": ({"a": 5, "b": 15}, ["t ? a-5 b+5", "u ? c-5 d+5"]),
    "nothing was moved": ({}, ["t ? a+0 b+0", "u ?"]),
    "a row, and one account that both ends decide": ({"a": 5, "d": 5}, ["t ? a-5 b+5", "u ? b-5 d+5"]),
    "beside committed ones": ({"a": 4, "b": 15, "d": 1}, ["t ? a-5 b+5", "u ok a-1 d+1", "v no a-7 d+7"]),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_balances_that_may_be(name: str) -> None:
    final, transfers = GOOD[name]
    assert ends(final, *transfers) == BankVerdict()


BAD = {
    "a committed transfer is lost": ({}, ["t ok a-5 b+5"]),
    "one is done twice": ({"a": 0, "b": 20}, ["t ok a-5 b+5"]),
    "one that was rolled back is there": ({"a": 5, "b": 15}, ["t no a-5 b+5"]),
    "half of one, and half of another": ({"a": 5, "d": 5}, ["t ? a-5 b+5", "u ? c-5 d+5"]),
    "half of one between the same": ({"a": 5, "b": 12, "c": 13}, ["t ? a-5 b+5", "u ? a-2 b+2", "v ? a-7 c+7"]),
    "an unknown one is done twice": ({"a": 0, "b": 20}, ["t ? a-5 b+5"]),
    "nobody did it": ({"a": 5, "b": 15}, []),
    "the parts of two in three accounts": ({"a": 6, "b": 14}, ["t ? a-5 b+5", "u ? a-3 b+3", "v ? a-2 b+2"]),
    "one pair is right, one is not": ({"c": 5, "d": 5}, ["t ? a-5 b+5", "u ? c-4 d+4"]),
    "one of a row is whole, one is not": ({"a": 5, "b": 15, "c": 5, "d": 5}, ["t ? a-5 b+5", "u ? b-5 d+5"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_balances_that_cannot_be(name: str) -> None:
    """The total is as it must be in all of them."""
    final, transfers = BAD[name]
    verdict = ends(final, *transfers)
    assert verdict.undecided == []
    assert verdict.problems
    assert all("no choice of the unknown ones makes that" in problem for problem in verdict.problems)


def test_what_is_not_explained_is_told() -> None:
    told = "the end: beside what committed transfers explain there is"
    no = "no choice of the unknown ones makes that"
    final = {"a": 6, "b": 14}
    assert ends(final, "t ? a-5 b+5", "u ? a+3 b-3", "w ? c-1 d+1", "v ok c-1 a+1").problems == [
        f"{told} a -5, b +4; {no} (t, u)",
        f"{told} c +1, d +0; {no} (w)",
    ]
    assert ends({"a": 9, "d": 1}).problems[0] == f"{told} a -1; {no} (there are none)"


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="two transfers have the id t"):
        ends({}, "t ok a-5 b+5", "t no a-5 b+5")
    with pytest.raises(ValueError, match="t changes the total by 1: it must be 0"):
        ends({}, "t no a-5 b+6")
    with pytest.raises(ValueError, match="t names x, y, which is no account"):
        ends({}, "t no a-5 x+3 y+2")


def unknown(number: int, source: str, target: str, amount: int) -> Transfer:
    return Transfer(f"t{number}", UNKNOWN, {source: -amount, target: amount})


def test_thirty_two_unknown_transfers_are_decided() -> None:
    """Between two accounts, and no two sums the same."""
    transfers = [unknown(number, "a", "b", 3**number) for number in range(32)]
    some = sum(3**number for number in range(0, 32, 3))
    assert (
        judge(START, transfers, [], {**START, "a": 10 - some, "b": 10 + some}, may_be_negative=True)
        == BankVerdict()
    )
    some += 1
    verdict = judge(START, transfers, [], {**START, "a": 10 - some, "b": 10 + some}, may_be_negative=True)
    assert (len(verdict.problems), verdict.undecided) == (1, [])


def test_too_many_to_decide_is_said_and_the_total_is_judged() -> None:
    transfers = [unknown(number, "a", "b", 3**number) for number in range(33)]
    verdict = judge(START, transfers, [], START)
    assert verdict == BankVerdict([], ["a +0, b +0: 33 unknown transfers are too many to decide"])
    wrong = judge(START, transfers, [], {**START, "b": 11})
    assert wrong == BankVerdict(
        ["the end: the total is 31, and must be 30"],
        ["a +0, b +1: 33 unknown transfers are too many to decide"],
    )
    elsewhere = judge(START, transfers, [], {**START, "c": 9, "d": 1})
    assert (len(elsewhere.problems), len(elsewhere.undecided)) == (2, 1)


def test_part_that_cannot_be_is_told_though_another_is_too_much() -> None:
    """One transfer connects a and b with c and d, and an account that nobody else touches decides about it."""
    initial = dict.fromkeys("abcde", 1000)
    transfers = [unknown(number, "a", "b", 3**number) for number in range(6)]
    transfers += [unknown(11, "c", "d", 5), unknown(12, "c", "d", 7)]
    transfers.append(Transfer("t13", UNKNOWN, {"b": -2, "c": 1, "e": 1}))
    for moved, expected in ((5, (0, 1)), (6, (1, 0))):
        final = {**initial, "b": 998, "c": 1001 - moved, "d": 1000 + moved, "e": 1001}
        verdict = judge(initial, transfers, [], final, most_sums=4)
        assert (len(verdict.problems), len(verdict.undecided)) == expected


def test_many_transfers_of_few_amounts_are_no_trouble() -> None:
    transfers = [unknown(number, "a", "b", number % 3 + 1) for number in range(300)]
    assert judge(START, transfers, [], {**START, "a": -90, "b": 110}, may_be_negative=True) == BankVerdict()
    row = [f"a{number}" for number in range(300)]
    chain = [unknown(number, row[number], row[number + 1], 7 + number) for number in range(299)]
    initial = dict.fromkeys(row, 1000)
    final = dict(initial)
    for one in chain[::3]:
        for account, change in one.changes.items():
            final[account] += change
    assert judge(initial, chain, [], final) == BankVerdict()
    final["a7"], final["a8"] = final["a7"] + 1, final["a8"] - 1
    assert len(judge(initial, chain, [], final).problems) == 1


@st.composite
def banks(draw: st.DrawFn) -> tuple[list[Transfer], dict[str, int]]:
    """Transfers of small amounts, and the balances when some are done; now and then one half, or not."""
    transfers = []
    final = dict(START)
    for number in range(draw(st.integers(0, 7))):
        source, target = draw(st.sampled_from("abcd")), draw(st.sampled_from("abcd"))
        amount = draw(st.integers(-4, 4))
        changes = {source: -amount, target: amount} if source != target else {source: 0}
        outcome = draw(st.sampled_from([COMMITTED, ROLLED_BACK, UNKNOWN, UNKNOWN, UNKNOWN]))
        transfers.append(Transfer(f"t{number}", outcome, changes))
        done = outcome is COMMITTED or (outcome is UNKNOWN and draw(st.booleans()))
        half = draw(st.integers(0, 9)) == 0
        for account, change in list(changes.items())[: 1 if half else 2]:
            final[account] += change if done else 0
    if draw(st.integers(0, 3)) == 0:
        one, other = draw(st.sampled_from("abcd")), draw(st.sampled_from("abcd"))
        final[one] += 1
        final[other] -= 1
    return transfers, final


@given(banks())
@settings(max_examples=500)
def test_the_judge_finds_what_trying_every_choice_finds(bank: tuple[list[Transfer], dict[str, int]]) -> None:
    transfers, final = bank
    doubtful = [one for one in transfers if one.outcome is UNKNOWN]
    explained = False
    for chosen in range(1 << len(doubtful)):
        balances = dict(START)
        for one in transfers:
            happened = one.outcome is COMMITTED or (one in doubtful and chosen >> doubtful.index(one) & 1)
            for account, change in one.changes.items():
                balances[account] += change if happened else 0
        explained |= balances == final
    verdict = judge(START, transfers, [], final, may_be_negative=True)
    assert verdict.undecided == []
    assert (verdict.problems == []) == explained
