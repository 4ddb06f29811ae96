"""A primary is paused until it is replaced, and goes on. The long form, with the Java client, is `make pauses`."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from holdfast.check.linearizability import FOREVER, UNTOLD, Call, Outcome
from holdfast.demo import pauses
from holdfast.demo.calls import history


@pytest.mark.slow
@pytest.mark.interop
def test_what_a_replaced_primary_answers_holds() -> None:
    verdict = pauses.Pauses(4, 271, Console(width=140)).run()
    assert verdict.broken == []
    assert verdict.diverged == 0
    assert verdict.replaced == 4
    assert min(verdict.calls[kind] for kind in ("write", "changed nothing", "read", "unknown")) > 0


def test_lines_become_calls() -> None:
    line = {"client": "c/0", "key": "k", "start_ns": 1, "end_ns": 2, "outcome": "ok", "result": None}
    lines = [
        {"ready": True},
        {**line, "op": "set", "arg": "v"},
        {**line, "op": "replaceIfSame", "arg": ["a", "b"], "result": True},
        {**line, "op": "removeIfSame", "arg": "a", "result": False},
        {**line, "op": "delete", "arg": None},
        {**line, "op": "remove", "arg": None, "outcome": "unknown", "error": "Gone: away"},
        {"done": True, "counts": {}},
    ]
    done = Outcome.DONE
    assert list(history(map(json.dumps, lines))) == [
        Call("set", "k", 1, 2, done, "v", None, None, "c/0"),
        Call("replace_if_same", "k", 1, 2, done, "b", "a", True, "c/0"),
        Call("remove_if_same", "k", 1, 2, done, None, "a", False, "c/0"),
        Call("delete", "k", 1, 2, done, None, None, UNTOLD, "c/0"),
        Call("remove", "k", 1, FOREVER, Outcome.UNKNOWN, None, None, None, "c/0"),
    ]
