"""What is said of a run's answers: which kind of call shows that a key holds no register, and what is excused."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.config import MapSettings, Settings
from holdfast.core.model.ids import SECOND
from holdfast.core.model.keys import partition_of
from holdfast_lab.check.linearizability import Call, Outcome
from holdfast_lab.sim import judging
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import simulated_settings
from holdfast_lab.sim.judging import HEARD_NS, LAST, judge_calls

PLAIN = simulated_settings(1, 7)
CONFIRMED = msgspec.structs.replace(PLAIN, maps={"default": MapSettings(backups=1, reads="confirmed")})


def call(operation: str, at_s: float, result: str | bool | None = None, **said: str) -> Call:
    start = round(at_s * SECOND)
    found = Call(operation, "k1", start, start + SECOND // 10, Outcome.DONE, result=result, client="c")
    found.argument, found.expected = said.get("writes"), said.get("expected")
    found.client = said.get("client", "c")
    return found


def judged(*calls: Call, settings: Settings = PLAIN, lost: list[tuple[int, int]] | None = None) -> list[str]:
    return judge_calls(calls, settings, lost=lost or [])


def test_a_lost_write_is_shown_by_the_last_look() -> None:
    problems = judged(call("set", 1, writes="a"), call("get", 5, client=LAST))
    assert len(problems) == 1
    assert "shown by a read" in problems[0]


def test_the_weakest_kind_of_call_that_shows_it_is_named() -> None:
    changed = judged(call("set", 1, writes="a"), call("put", 3, writes="b"))
    assert "shown by a call that changed something" in changed[0]
    nothing = judged(call("set", 1, writes="a"), call("replace_if_same", 3, False, expected="a", writes="b"))
    assert "shown by a call that changed nothing" in nothing[0]


def test_a_read_counts_only_where_reads_are_confirmed() -> None:
    calls = call("set", 1, writes="a"), call("get", 3)
    assert judged(*calls) == []
    assert judged(*calls, settings=CONFIRMED)


def test_an_answer_that_nobody_can_have_given_is_found_everywhere() -> None:
    assert "that was never written" in judged(call("get", 3, "invented"))[0]
    refused = call("set", 1, writes="a")
    refused.outcome = Outcome.REFUSED
    assert "was refused" in judged(refused, call("get", 3, "a"))[0]
    assert "before it was written" in judged(call("get", 1, "a"), call("set", 3, writes="a"))[0]


def test_a_partition_that_was_lost_excuses_what_was_written_there_before() -> None:
    partition = partition_of(wire_key("k1"), 0, 7)
    calls = call("set", 1, writes="a"), call("get", 60, client=LAST)
    assert judged(*calls)
    assert judged(*calls, lost=[(partition, 30 * SECOND)]) == []
    assert judged(*calls, lost=[((partition + 1) % 7, 30 * SECOND)])
    after = call("set", 45, writes="b"), call("get", 60, client=LAST)
    assert judged(*after, lost=[(partition, 30 * SECOND)]), "what is written after it is to be there"
    early = call("set", 1, writes="a"), call("put", 3, writes="b"), call("get", 60, client=LAST)
    when = 30 * SECOND + HEARD_NS
    assert judged(*early, lost=[(partition, when)]), "and what was lost before it was lost"


def test_after_a_loss_any_value_of_before_may_be_there_but_only_one() -> None:
    partition = partition_of(wire_key("k1"), 0, 7)
    loss = 30 * SECOND
    at = loss // SECOND + HEARD_NS // SECOND + 5
    before = [call("replace", number, f"v{number - 1}", writes=f"v{number}") for number in range(2, 25)]
    before[:0] = [call("set", 1, writes="v1")]
    assert judged(*before, call("get", at, "v7", client=LAST), lost=[(partition, loss)]) == []
    assert judged(*before, call("get", at, None, client=LAST), lost=[(partition, loss)]) == []
    both = call("get", at, "v7", client=LAST), call("get", at + 2, "v8", client=LAST)
    assert judged(*before, *both, lost=[(partition, loss)]), "nobody has written the second one since"


def test_a_key_that_cannot_be_decided_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(calls: list[Call], **modes: bool) -> list[object]:
        raise RuntimeError("too many")

    monkeypatch.setattr(judging, "judge", gives_up)
    assert judged(call("set", 1, writes="a")) == ["key k1 is not decided: too many"]


def test_a_removal_that_was_under_way_at_the_loss_may_have_been_made_after_it() -> None:
    """Seed 3704 with transactions: begun about the time of the loss, it removed what was written long after it."""
    partition = partition_of(wire_key("k1"), 0, 7)
    loss = 30 * SECOND
    removal = call("remove", 35, "a")
    removal.end = 55 * SECOND
    after = call("set", 45, writes="a"), call("put", 60, None, writes="b")
    assert judged(removal, *after, lost=[(partition, loss)]) == []
    removal.end = 36 * SECOND
    assert judged(removal, *after, lost=[(partition, loss)]), "that was over before it was written"
