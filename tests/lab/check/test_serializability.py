"""The judge of list-append histories names each anomaly, and nothing that is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast_lab.check.serializability import (
    Anomaly,
    Isolation,
    ListAppend,
    ListRead,
    ListTransaction,
    TransactionOutcome,
    judge,
)

COMMITTED, ROLLED_BACK, UNKNOWN = TransactionOutcome
READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE, STRICT = Isolation
Operation = ListAppend | ListRead


def operations(text: str) -> list[Operation]:
    """`x+1` appends 1 to x, `x=12` reads [1, 2], `x=` the empty list; `x?` was not answered."""
    found: list[Operation] = []
    for word in text.split():
        key, sign, rest = word[0], word[1], word[2:]
        if sign == "+":
            found.append(ListAppend(key, int(rest)))
        else:
            found.append(ListRead(key, None if sign == "?" else tuple(map(int, rest))))
    return found


def history(*lines: str) -> list[ListTransaction]:
    """`T1 ok: x+1 y=`: all at the same time; `ok`, `no` or `?`. `T1 ok 3-5: ...` with its start and end."""
    found = []
    outcomes = {"ok": COMMITTED, "no": ROLLED_BACK, "?": UNKNOWN}
    for line in lines:
        head, _, body = line.partition(":")
        name, outcome, *times = head.split()
        start, _, end = (times or ["0-9"])[0].partition("-")
        last = int(end) if end else None
        found.append(ListTransaction(name, outcomes[outcome], int(start), last, operations(body)))
    return found


def anomalies(transactions: Sequence[ListTransaction], level: Isolation) -> list[Anomaly]:
    return [found.anomaly for found in judge(transactions, level)]


# -- each anomaly, and a near twin without it

EVERYWHERE = list(Isolation)
NOT_READ_COMMITTED = [REPEATABLE_READ, SERIALIZABLE, STRICT]

BAD: dict[str, tuple[list[Anomaly], list[Isolation], list[str]]] = {
    "each wrote over the other": (
        [Anomaly.G0],
        EVERYWHERE,
        ["A ok: x+1 y+1", "B ok: x+2 y+2", "C ok: x=12", "D ok: y=21"],
    ),
    "each wrote over the other, and the second append was seen by nobody": (
        [Anomaly.G0],
        [READ_COMMITTED],
        ["A ok: x+1 y+1", "B ok: y+2 x+2", "C ok: x=1", "D ok: y=2"],
    ),
    "each wrote over the other, and readers are in between": (
        [Anomaly.G0, Anomaly.G_SINGLE],
        [SERIALIZABLE, STRICT],
        ["A ok: x+1 y+1", "B ok: y+2 x+2", "C ok: x=1", "D ok: y=2"],
    ),
    "what was rolled back is read": ([Anomaly.G1A], EVERYWHERE, ["A no: x+1", "B ok: x=1"]),
    "what was rolled back is read below others": (
        [Anomaly.G1A],
        EVERYWHERE,
        ["A no: x+1", "B ok: x+2", "C ok: x=12"],
    ),
    "a list in the middle of a transaction": (
        [Anomaly.G1B],
        [READ_COMMITTED],
        ["A ok: x+1 x+2", "B ok: x=1"],
    ),
    "a list in the middle of a transaction, which is a skewed read, too": (
        [Anomaly.G1B, Anomaly.G_SINGLE],
        [SERIALIZABLE, STRICT],
        ["A ok: x+1 x+2", "B ok: x=1", "C ok: x=12"],
    ),
    "each read what the other appended": (
        [Anomaly.G1C],
        EVERYWHERE,
        ["A ok: x+1 y=2", "B ok: y+2 x=1"],
    ),
    "one wrote over what it was read by": (
        [Anomaly.G1C],
        EVERYWHERE,
        ["A ok: x+1 y+2", "B ok: x=1 y+1", "C ok: y=12"],
    ),
    "a lost update": (
        [Anomaly.G_SINGLE],
        NOT_READ_COMMITTED,
        ["A ok: x= x+1", "B ok: x= x+2", "C ok: x=12"],
    ),
    "a skewed read": ([Anomaly.G_SINGLE], NOT_READ_COMMITTED, ["A ok: x+1 y+1", "B ok: x= y=1"]),
    "a read that does not repeat": ([Anomaly.G_SINGLE], NOT_READ_COMMITTED, ["A ok: x+1", "B ok: x= x=1"]),
    "a skewed write": ([Anomaly.G2], NOT_READ_COMMITTED, ["A ok: x= y+1", "B ok: y= x+1"]),
    "two readers saw two appends in either order": (
        [Anomaly.G2],
        NOT_READ_COMMITTED,
        ["A ok: x+1", "B ok: y+1", "C ok: x=1 y=", "D ok: x= y=1"],
    ),
    "its own append is not shown": ([Anomaly.INTERNAL], EVERYWHERE, ["A ok: x+1 x="]),
    "one of its own appends is not shown": ([Anomaly.INTERNAL], EVERYWHERE, ["A ok: x+1 x+2 x=2"]),
    "its own append is not the last": ([Anomaly.INTERNAL], EVERYWHERE, ["A ok: x+1 x=12", "B ok: x+2"]),
    "its own append is shown before it is made": ([Anomaly.INTERNAL], EVERYWHERE, ["A ok: x=1 x+1"]),
    "its own append is shown twice": ([Anomaly.INTERNAL], EVERYWHERE, ["A ok: x+1 x=11"]),
    "the first append of a transaction is missing": (
        [Anomaly.TORN],
        [READ_COMMITTED],
        ["A ok: x+1 x+2", "B ok: x=2"],
    ),
    "the third append of a transaction is before the second": (
        [Anomaly.TORN, Anomaly.G1B],
        EVERYWHERE,
        ["A ok: x+1 x+2 x+3", "B ok: x=132"],
    ),
    "the appends of a transaction are the wrong way round": (
        [Anomaly.TORN],
        EVERYWHERE,
        ["A ok: x+1 x+2", "B ok: x+3", "C ok: x=213"],
    ),
    "an element from nowhere": ([Anomaly.UNWRITTEN], EVERYWHERE, ["A ok: x=1"]),
    "an element of another key": ([Anomaly.UNWRITTEN], EVERYWHERE, ["A ok: y+1", "B ok: x=1"]),
    "an element twice": ([Anomaly.DUPLICATE], EVERYWHERE, ["A ok: x+1", "B ok: x=11"]),
    "lists of which neither is the beginning of the other": (
        [Anomaly.INCOMPATIBLE],
        EVERYWHERE,
        ["A ok: x+1", "B ok: x+2", "C ok: x=12", "D ok: x=2"],
    ),
    "an element from nowhere, in a list that does not fit either": (
        [Anomaly.INCOMPATIBLE, Anomaly.UNWRITTEN],
        EVERYWHERE,
        ["A ok: x+1", "B ok: x+2", "C ok: x=12", "D ok: x=3"],
    ),
    "an append that nobody sees": (
        [Anomaly.LOST_APPEND],
        [READ_COMMITTED, SERIALIZABLE],
        ["A ok 0-1: x+1", "B ok 2-3: x="],
    ),
    "an append that was seen, and is gone": (
        [Anomaly.LOST_APPEND],
        [READ_COMMITTED, SERIALIZABLE],
        ["A ok 0-9: x+1", "B ok 1-2: x=1", "C ok 10-11: x="],
    ),
    "an unknown append that was seen, and is gone": (
        [Anomaly.LOST_APPEND],
        [READ_COMMITTED, SERIALIZABLE],
        ["A ? 0: x+1", "B ok 1-2: x=1", "C ok 3-4: x="],
    ),
    "half of an unknown transaction": (
        [Anomaly.LOST_APPEND],
        [READ_COMMITTED],
        ["A ? 0: x+1 y+1", "B ok 1-2: x=1", "C ok 3-4: y="],
    ),
    "half of an unknown transaction, which one sees": (
        [Anomaly.G_SINGLE],
        NOT_READ_COMMITTED,
        ["A ? 0: x+1 y+1", "B ok 1-2: x=1 y="],
    ),
    "unknown transactions count through each other": (
        [Anomaly.G1C],
        EVERYWHERE,
        ["A ? 0: x+1 y=2", "B ? 0: y+2 x=1 z+3", "C ok 0-9: z=3"],
    ),
    "what was rolled back has no place in the order": (
        [Anomaly.G1A, Anomaly.G1A],
        EVERYWHERE,
        ["A no: x+1 y+3", "B ok: x+2 y+4", "C ok: x=12", "D ok: y=43"],
    ),
    "what was rolled back is not seen whole": ([Anomaly.G1A], EVERYWHERE, ["A no 0-1: x+1 y+2", "B ok 2-3: x=1 y="]),
    "what was rolled back is read from the middle": ([Anomaly.G1A], EVERYWHERE, ["A no: x+1 x+2", "B ok: x=1"]),
    "what nobody appended has no place in the order": (
        [Anomaly.UNWRITTEN],
        EVERYWHERE,
        ["A ok: x+1", "B ok: x=17", "C ok: x=1"],
    ),
    "what is there twice has one place": ([Anomaly.DUPLICATE], EVERYWHERE, ["A ok: x+1", "B ok: x+2", "C ok: x=121"]),
    "a list that does not fit has no place": (
        [Anomaly.INCOMPATIBLE],
        EVERYWHERE,
        ["A ok: x+1", "B ok: x+2 z+9", "C ok: x=12", "D ok: x=2 z=9"],
    ),
    "the last that was seen comes before what was not": (
        [Anomaly.G_SINGLE],
        NOT_READ_COMMITTED,
        ["A ok: x+1", "B ok: x+2 y+5", "C ok: x=12", "D ok: x+3 y=", "E ok: y=5"],
    ),
    "the first of three that nobody saw read without the last": (
        [Anomaly.G2],
        NOT_READ_COMMITTED,
        ["A ok: x= x+1 y+4", "B ok: x+2", "C ok: x+3 y="],
    ),
    "the last of three that nobody saw read without the first": (
        [Anomaly.G2],
        NOT_READ_COMMITTED,
        ["A ok: x+1 y=", "B ok: x+2", "C ok: x= x+3 y+4"],
    ),
    "the second of two that nobody saw read without the first": (
        [Anomaly.G2],
        NOT_READ_COMMITTED,
        ["A ok: x+1 y=", "B ok: x= x+2 y+4"],
    ),
    "one rw is told rather than two": (
        [Anomaly.G_SINGLE],
        NOT_READ_COMMITTED,
        ["A ok: x= y+1 u=6", "B ok: y= x+2 z+5", "C ok: z=5 u+6"],
    ),
    "a shown append after an answer that did not come": ([Anomaly.INTERNAL], EVERYWHERE, ["A ok: x? y+1 y="]),
    "an order in time over others": (
        [Anomaly.G0],
        [STRICT],
        ["A ok 0-1: x+1", "B ok 0-3: z+1", "C ok 4-5: x+2", "D ok 0-9: x=21"],
    ),
    "no rw is told rather than one": (
        [Anomaly.G1C],
        [STRICT],
        ["A ok 0-1: y=7 z+3", "B ok 2-9: x+1 z=", "C ok 0-9: y+7 x=1", "D ok 3-9: z=3"],
    ),
    "one rw is told rather than two, in time": (
        [Anomaly.G_SINGLE],
        [STRICT],
        ["A ok 0-1: y+1 v=6", "B ok 2-9: x=", "C ok 0-9: x+1 y= u+5", "D ok 0-9: u=5 v+6"],
    ),
    "a read that is too old": ([Anomaly.G_SINGLE], [STRICT], ["A ok 0-1: x+1", "B ok 2-3: x=", "C ok 2-9: x=1"]),
    "a list in another order than in time": (
        [Anomaly.G0],
        [STRICT],
        ["A ok 0-1: x+1", "B ok 2-3: x+2", "C ok 0-9: x=21"],
    ),
    "a read of what had not begun": ([Anomaly.G1C], [STRICT], ["A ok 0-1: x=1", "B ok 2-3: x+1"]),
    "two old reads": (
        [Anomaly.G2],
        [STRICT],
        ["A ok 0-1: y+1", "B ok 2-9: x=", "C ok 0-9: x+1 u+5", "D ok 0-9: u=5 y="],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_anomaly_is_found(name: str) -> None:
    expected, levels, lines = BAD[name]
    for level in levels:
        assert anomalies(history(*lines), level) == expected, level


@pytest.mark.parametrize("name", [name for name, row in BAD.items() if row[1] is NOT_READ_COMMITTED])
def test_what_a_read_committed_system_may_do(name: str) -> None:
    assert judge(history(*BAD[name][2]), READ_COMMITTED) == []


@pytest.mark.parametrize("name", [name for name, row in BAD.items() if row[1] == [STRICT]])
def test_what_is_forbidden_by_time_only(name: str) -> None:
    assert judge(history(*BAD[name][2]), SERIALIZABLE) == []


GOOD: dict[str, list[str]] = {
    "one after the other": ["A ok: x+1 y+1", "B ok: x+2 y+2", "C ok: x=12", "D ok: y=12"],
    "the second append was seen by nobody": ["A ok: x+1 y+1", "B ok: y+2 x+2", "C ok: x=1", "D ok: y=1"],
    "what was rolled back is not read": ["A no: x+1", "B ok: x="],
    "whoever was rolled back may have read anything": ["A no: x+1 y=", "B no: x=1 y=7", "C ok: y+1"],
    "who is unknown and not seen may have read anything": ["A ? : x+1 y=7", "B ok: y+1"],
    "a list after a transaction": ["A ok: x+1 x+2", "B ok: x=12"],
    "its own list in the middle": ["A ok: x+1 x=1 x+2 x=12", "B ok: x=12"],
    "its own appends on those of others": ["A ok: x=1 x+2 x=12 x+3 x=123", "B ok: x+1", "C ok: x=123"],
    "one read what the other appended": ["A ok: x+1 y=", "B ok: y+2 x=1"],
    "updates that see each other": ["A ok: x= x+1", "B ok: x=1 x+2", "C ok: x=12"],
    "an update among appends that nobody saw": ["A ok: x+1", "B ok: x= x+2", "C ok: x+3"],
    "an update that nobody saw": ["A ok: x= x+1", "B ok: x="],
    "a whole read": ["A ok: x+1 y+1", "B ok: x=1 y=1", "C ok: x= y="],
    "a read that repeats": ["A ok: x+1", "B ok: x= x="],
    "writes that see each other": ["A ok: x= y+1", "B ok: y=1 x+1"],
    "two readers saw two appends in one order": ["A ok: x+1", "B ok: y+1", "C ok: x=1 y=", "D ok: x=1 y=1"],
    "an answer that did not come": ["A ok: x+1 x?", "B ok: x? x=1"],
    "nothing": [],
    "nobody did anything": ["A ok:", "B no:", "C ?:"],
    "an unknown append that happened": ["A ? 0: x+1", "B ok 1-2: x= ", "C ok 3-4: x=1"],
    "an unknown append that did not": ["A ? 0-1: x+1", "B ok 2-3: x="],
    "an unknown append that nobody who counts has seen": ["A ? 0: x+1", "B ? 1: x=1", "C ok 3-4: x="],
    "an unknown append that happened after its end": ["A ? 0-1: x+1", "B ok 2-3: x=", "C ok 4-5: x=1"],
    "an append under way": ["A ok 0-2: x+1", "B ok 2-3: x="],
    "a committed append of which nobody knows when": ["A ok 0: x+1", "B ok 2-3: x="],
    "a read under way when another began": ["A ok 0-1: x+1", "B ok 1-3: x=", "C ok 2-9: x=1"],
    "a list in the order of time": ["A ok 0-1: x+1", "B ok 2-3: x+2", "C ok 4-9: x=12"],
    "a whole unknown transaction": ["A ? 0: x+1 y+1", "B ok 1-2: x=1", "C ok 3-4: y=1"],
    "a transaction that read its own first append and was read": ["A ok: x+1 y= x=1", "B ok: x=1 y+1"],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_may_be_is_good(name: str) -> None:
    assert judge(history(*GOOD[name]), STRICT) == []


def test_an_old_read_is_not_a_lost_append_if_a_later_one_shows_it() -> None:
    lines = ["A ok 0-1: x+1", "B ok 2-9: x=", "C ok 3-4: x=1"]
    assert judge(history(*lines), SERIALIZABLE) == []
    assert judge(history(*lines[::-1]), SERIALIZABLE) == []
    assert anomalies(history(*lines, "D ok 5-6: x="), SERIALIZABLE) == [Anomaly.LOST_APPEND]
    assert anomalies(history(*lines, "D ok 5-6: x=1 x="), READ_COMMITTED) == [Anomaly.LOST_APPEND], (
        "the last read of a transaction counts"
    )


def test_an_unknown_transaction_was_committed_before_the_first_who_read_it_ended() -> None:
    lines = ["A ? 0: x+1", "B ok 0-9: x=1", "C ok 0-2: x=1", "D ok 4-5: x="]
    assert anomalies(history(*lines), SERIALIZABLE) == [Anomaly.LOST_APPEND]
    assert judge(history(*lines[:2], lines[3]), SERIALIZABLE) == []
    unanswered = ["A ? 0: x+1", "B ok 0: x=1", "D ok 4-5: x="]
    assert judge(history(*unanswered), SERIALIZABLE) == []


def test_an_unknown_transaction_counts_wherever_it_is_read() -> None:
    """After what says nothing, and in a list that does not fit."""
    lines = ["A ? : x+1 y=4", "B ok: y+4 z? x=1"]
    assert anomalies(history(*lines), SERIALIZABLE) == [Anomaly.G1C]
    strange = ["A ? : x+3 y=7", "B ok: x+1", "C ok: x+2", "D ok: x=12", "E ok: x=3"]
    assert anomalies(history(*strange), SERIALIZABLE) == [Anomaly.INCOMPATIBLE, Anomaly.UNWRITTEN]


# -- what is said


def words(*lines: str, level: Isolation = STRICT) -> list[str]:
    return [str(found) for found in judge(history(*lines), level)]


def test_a_cycle_is_told_in_words() -> None:
    assert words("A ok: x+1 y+5", "B ok: x+2 y=", "C ok: x=12") == [
        "G-single: B read y without 5, which A appended (rw); A appended 1 to x before B appended 2 (ww)"
    ]
    (told,) = words("B ok: x+2", "C ok: x=2 z+4", "D ok: x= z=4")
    first = "G-single: D read x without 2, which B appended (rw); B appended 2 to x, which C read (wr); "
    assert told == first + "C appended 4 to z, which D read (wr)"


def test_what_nobody_saw_is_told_in_words() -> None:
    """By its key and element, though the graph has hubs in between."""
    assert words("A ok: x= y=3", "B ok: x+1", "C ok: x+2 y+3", "D ok: x+4") == [
        "G-single: A read x without 2, which C appended (rw); C appended 3 to y, which A read (wr)"
    ]
    assert words("A ok: x+1 y+1", "B ok: x=1", "C ok: x+2 y=", "D ok: x+3", "E ok: y=1") == [
        "G-single: C read y without 1, which A appended (rw); A appended 1 to x before C appended 2 (ww)"
    ]


def test_what_comes_before_the_unseen_is_told_in_words() -> None:
    lines = ["A ok: x+1", "B ok: x+2 y+5", "C ok: x=12", "D ok: x+3 y=", "E ok: y=5"]
    assert words(*lines) == [
        "G-single: D read y without 5, which B appended (rw); B appended 2 to x before D appended 3 (ww)"
    ]


def test_time_is_told_in_words() -> None:
    assert words("A ok 0-1: x+1", "B ok 2-3: x+2", "C ok 0-9: x=21") == [
        "G0: A had ended before B began (real time); B appended 2 to x before A appended 1 (ww)"
    ]


def test_single_reads_are_told_in_words() -> None:
    assert words("A ok: x+1 x=") == ["internal: A had appended [1] to x, and read []"]
    assert words("A ok: x=7") == ["unwritten element: A read 7 in x, which was never appended there"]
    assert words("A ok: x+1", "B ok: x=11") == ["duplicate element: B read 1 in x twice"]
    assert words("A ok: x+1 x+2", "B ok: x=2", level=READ_COMMITTED) == [
        "torn transaction: B read 2 in x, and not before it 1, which A had appended first"
    ]
    assert words("A no: x+1", "B ok: x=1", "C ok: x=1") == [
        "G1a: B read 1 in x, which A had appended, and was rolled back"
    ]
    assert words("A ok 0-1: x+1", "B ok 2-3: x=", level=SERIALIZABLE) == [
        "lost append: A appended [1] to x, and B, which began later and is the last to have read it, did not see it"
    ]
    told = words("A ok: x+1", "B ok: x+2", "C ok: x=12", "D ok: x=2")
    assert told == ["incompatible orders: D read 2 at place 0 of x, where C read 1"]
    more = words("A ok: x+1", "B ok: x+2", "C ok: x=12", "D ok: x=2", "E ok: x=21")
    assert more == ["incompatible orders: D read 2 at place 0 of x, where C read 1; so did 1 more"]
    place = words("A ok: x+1", "B ok: x+2", "C ok: x=12", "D ok: x+3 z+4", "E ok: x=13")
    assert place == ["incompatible orders: E read 3 at place 1 of x, where C read 2"]
    once = words("A ok: x+1", "B ok: x+2", "C ok: x=12", "D ok: x=7", "E ok: x=78")
    assert [told.partition(":")[0] for told in once] == ["incompatible orders"] + ["unwritten element"] * 2


def test_of_a_long_list_only_the_end_is_told() -> None:
    own: list[Operation] = [ListAppend("x", number) for number in range(11)]
    (found,) = judge([ListTransaction("A", COMMITTED, 0, 1, [*own, ListRead("x", range(10))])])
    told = "A had appended [..., 1, 2, 3, 4, 5, 6, 7, 8, 9, 10] to x, and read [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    assert found.words == told


def test_what_each_is_about() -> None:
    (found,) = judge(history("A no: x+1", "B ok: x=1"))
    assert found.transactions == ("A", "B")
    (found,) = judge(history("A ok: x+1", "B ok: x=11"))
    assert found.transactions == ("B", "A")
    (found,) = judge(history("A ok 0-1: x+1", "B ok 2-3: x="))
    assert found.transactions == ("A", "B")


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="two transactions have the id A"):
        judge(history("A ok: x+1", "A ok: x+2"))
    with pytest.raises(ValueError, match="1 is appended to x twice, by A and B: append no element twice"):
        judge(history("A ok: x+1", "B ok: x+1"))
    with pytest.raises(ValueError, match="A ends at 3, before it begins"):
        judge(history("A ok 4-3: x+1"))
    assert judge(history("A ok 4-4: x+1", "B ok: y+1")) == []


def test_each_circle_is_told() -> None:
    """Two sets of transactions that have nothing to do with each other, and one that is wrong by time only."""
    lines = ["A ok: x= x+1", "B ok: x= x+2", "C ok: x=12", "D ok: y= z+3", "E ok: z= y+4"]
    assert anomalies(history(*lines), STRICT) == [Anomaly.G_SINGLE, Anomaly.G2]
    lines += ["F ok 0-1: u+1", "G ok 2-3: u=", "H ok 4-5: u=1"]
    assert anomalies(history(*lines), STRICT) == [Anomaly.G_SINGLE, Anomaly.G2, Anomaly.G_SINGLE]
