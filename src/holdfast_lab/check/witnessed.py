"""Coverage of the judges: the share of acknowledged writes whose loss would have been noticed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from holdfast_lab.check.linearizability import STILL, UNTOLD, Call, Outcome, changed_nothing

NAMING = frozenset({"get", "put", "put_if_absent", "replace", "remove"})

COMPARING = frozenset({"replace_if_same", "remove_if_same"})


def witnessed(calls: Iterable[Call]) -> Iterator[tuple[Call, bool]]:
    """Every acknowledged call that changed something, and whether its loss would have been noticed.

    A value is witnessed if a later answer names it, or compares it successfully; a removal, if an answer
    shows the absence before anything may have been stored again.
    """
    by_key: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.outcome is not Outcome.REFUSED:
            by_key[call.key].append(call)
    for history in by_key.values():
        history.sort(key=lambda call: call.start)
        named = _named(history)
        for number, call in enumerate(history):
            if call.outcome is not Outcome.DONE or call.operation in STILL or changed_nothing(call):
                continue
            if call.result is UNTOLD:
                continue  # Unknown whether there was anything to remove.
            if call.operation in ("remove", "delete", "remove_if_same"):
                yield call, _absence_seen(call, history[number + 1 :])
            else:
                yield call, named.get(call.argument, -1) >= call.start


def _named(history: list[Call]) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for call in history:
        if call.outcome is not Outcome.DONE:
            continue
        if isinstance(call.result, str):
            found[call.result] = call.end
        elif call.result is True and call.operation in COMPARING and call.expected is not None:
            found[call.expected] = call.end
    return found


def _absence_seen(removal: Call, later: list[Call]) -> bool:
    for call in later:
        tells = call.operation in NAMING and call.outcome is Outcome.DONE
        if tells and call.result is None:
            return True
        if call.start >= removal.end and (tells or not (call.operation in STILL or changed_nothing(call))):
            return False
    return False
