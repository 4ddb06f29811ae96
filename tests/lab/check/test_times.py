"""Nothing ends before its time, nothing outlives it; each half is seen to speak."""

from __future__ import annotations

from holdfast_lab.check.linearizability import FOREVER, Call, Outcome, judge
from holdfast_lab.check.times import OUTLIVES, ROUNDED, Clocks, Remaining, endings, misdated, outlived

S = 1_000_000_000
DONE, UNKNOWN = Outcome.DONE, Outcome.UNKNOWN


def put(value: str, start: float, *, ttl: float = 0, idle: float = 0, outcome: Outcome = DONE) -> Call:
    end = int((start + 0.1) * S) if outcome is DONE else FOREVER
    spans = [int(span * S) if span else FOREVER for span in (ttl, idle)]
    return Call("set", "k", int(start * S), end, outcome, value, ttl=spans[0], idle=spans[1])


def get(result: str | None, at: float) -> Call:
    return Call("get", "k", int(at * S), int((at + 0.1) * S), DONE, result=result)


def touch(at: float, ttl: float, *, found: bool = True, outcome: Outcome = DONE) -> Call:
    end = int((at + 0.1) * S) if outcome is DONE else FOREVER
    return Call("set_ttl", "k", int(at * S), end, outcome, result=found, ttl=int(ttl * S))


def good(*calls: Call, clocks: Clocks | None = None) -> bool:
    """Whether nothing has ended too early."""
    return not judge([*calls, *endings(calls, clocks or Clocks())])


def test_a_value_ends_when_its_time_is_over_and_not_at_a_quarter_of_it() -> None:
    assert good(put("a", 0, ttl=4), get("a", 1), get(None, 4))
    assert not good(put("a", 0, ttl=4), get(None, 1))
    assert not good(put("a", 0), get(None, 1000)), "one without a time never ends"


def test_a_value_that_has_ended_does_not_come_back() -> None:
    assert not good(put("a", 0, ttl=4), get(None, 5), get("a", 6))


def test_a_later_value_has_its_own_time() -> None:
    assert not good(put("a", 0, ttl=1), put("b", 2, ttl=10), get(None, 4))
    assert good(put("a", 0, ttl=1), put("b", 2, ttl=10), get(None, 13))


def test_a_new_time_takes_the_place_of_the_old_one() -> None:
    longer = put("a", 0, ttl=1), touch(0.5, 10)
    assert not good(*longer, get(None, 2))
    assert good(*longer, get(None, 11))
    assert good(put("a", 0, ttl=10), touch(0.5, 1), get(None, 2)), "a shorter one counts, too"
    assert good(put("a", 0, ttl=1), touch(1.2, 10, found=False), get(None, 2)), "it found nothing to lengthen"


def test_a_new_time_that_may_not_have_arrived_changes_nothing_for_sure() -> None:
    doubtful = put("a", 0, ttl=2), touch(0.5, 1, outcome=UNKNOWN)
    assert good(*doubtful, get("a", 1.8), get(None, 3))
    assert good(*doubtful, get(None, 1.6))
    assert not good(*doubtful, get(None, 1.0))


def test_each_use_keeps_a_value_for_its_idle_time_again() -> None:
    used = put("a", 0, idle=2), get("a", 1), get("a", 2.5)
    assert not good(*used, get(None, 4))
    assert good(*used, get(None, 5))


def test_fast_clocks_and_calendars_that_were_set_are_allowed_for() -> None:
    early = put("a", 0, ttl=10), get(None, 9.6)
    assert not good(*early)
    assert good(*early, clocks=Clocks(fastest=1.05))
    assert good(*early, clocks=Clocks(early_ns=S))


def test_who_outlives_his_time_is_told() -> None:
    late = 4 + OUTLIVES / S + 1
    assert outlived([put("a", 0, ttl=4), get("a", late)])
    assert not outlived([put("a", 0, ttl=4), get("a", 5)]), "members may be this late"
    assert not outlived([put("a", 0), get("a", late)])
    assert not outlived([put("a", 0, ttl=4), touch(3, 100), get("a", late)])
    assert outlived([put("a", 0, ttl=4), touch(3, 4), get("a", late + 4)])


def test_a_write_that_may_come_late_may_end_late() -> None:
    late = 4 + OUTLIVES / S + 1
    assert not outlived([put("a", 0, ttl=4, outcome=UNKNOWN), get("a", late)])


def test_who_is_idle_for_long_is_gone() -> None:
    late = 10 + OUTLIVES / S + 5
    assert outlived([put("a", 0, idle=2), get("a", 10), get("a", late)])
    assert not outlived([put("a", 0, idle=2), get("a", 10), get("a", 20), get("a", late)])
    promoted = Clocks(settled_ns=20 * S)
    assert not outlived([put("a", 0, idle=2), get("a", 10), get("a", late)], promoted)
    assert outlived([put("a", 0, idle=2), get("a", 10), get("a", late + 10)], promoted)


def test_who_sees_a_value_at_the_moment_in_which_it_is_written_sees_it_in_time() -> None:
    early = Call("get", "k", 0, 5 * S, DONE, result="a")
    assert not outlived([put("a", 1, idle=2), early])


def view(at: float, left: float | None) -> Remaining:
    """An entry view of the value `a` that was answered within 0.1 s."""
    return Remaining(get("a", at), int(left * S) if left is not None else None)


def test_a_view_of_another_end_is_told() -> None:
    calls = [put("a", 10, ttl=60)]
    slack = OUTLIVES / S
    assert not misdated(calls, [view(20, 50), view(50, 20), view(50, 20 + slack)])
    assert len(misdated(calls, [view(50, 20.2 + slack)])) == 1, "it began again"
    assert len(misdated(calls, [view(50, None)])) == 1, "it never ends"
    assert len(misdated(calls, [view(20, 49.8)])) == 1, "it ends early"


def test_a_view_counts_whole_milliseconds() -> None:
    calls = [put("a", 10, ttl=60)]
    exact = get("a", 20)
    early = 70 * S - exact.end
    assert not misdated(calls, [Remaining(exact, early - ROUNDED)])
    assert misdated(calls, [Remaining(exact, early - ROUNDED - 1)])


def test_a_view_allows_for_clocks() -> None:
    calls = [put("a", 10, ttl=60)]
    assert not misdated(calls, [view(20, 49)], Clocks(fastest=1.05))
    assert not misdated(calls, [view(20, 49)], Clocks(early_ns=S))
    late = view(50, 25 + OUTLIVES / S)
    assert misdated(calls, [late]) and not misdated(calls, [late], Clocks(late_ns=5 * S))
    assert not misdated(calls, [late], Clocks(slowest=0.9))


def test_a_view_is_judged_where_all_writes_before_it_were_answered() -> None:
    wrong = view(50, 59)
    assert misdated([put("a", 10, ttl=60)], [wrong])
    assert not misdated([put("a", 10, ttl=60, outcome=UNKNOWN)], [wrong])
    assert not misdated([put("a", 10, ttl=60), touch(45, 60)], [wrong]), "it was given another time"
    assert not misdated([put("a", 10, ttl=60), touch(45, 60, outcome=UNKNOWN)], [wrong])
    assert not misdated([put("a", 10, ttl=60, idle=5)], [wrong]), "it may end sooner, unused"
    assert not misdated([], [wrong])
