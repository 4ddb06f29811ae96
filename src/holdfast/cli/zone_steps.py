"""Steps of `holdfast plan FILE`: the effect of zone events on the assignments of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.cli.answers import Answer
from holdfast.cli.rendering import Shown
from holdfast.core.model.zone_answers import AssignmentsTold
from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.explain import ExplainStep, NotAStep, explain
from holdfast.core.zones.transitions import Result
from holdfast.errors import ConfigError

EXAMPLE = '{"op": "update_pending", "before": {"stable": {"peers": ["A"]}}, "event": {...}}'


class Explained(Answer):
    """The result of a step, and the assignments after it."""

    result: Result
    after: PartitionKeys
    number: int
    op: str

    def view(self) -> Iterable[Shown]:
        after = self.after
        yield f"{self.number}: {self.op}: {self.result.value}"
        rows: list[tuple[str, Assignments | None]] = [("stable", after.stable)]
        rows += [("pending" if not at else "", one) for at, one in enumerate(after.pending)]
        rows += [
            ("planned", after.planned),
            ("to take out", after.switch_reduce),
            ("to put back", after.switch_append),
        ]
        for name, assignments in rows:
            if assignments is not None:
                yield f"   {name:<12} {shown_assignments(assignments)}"
        if after.trigger is not None:
            yield f"   {'trigger':<12} {after.trigger}"
        for at, link in enumerate(after.chain):
            name = "" if at else "chain"
            yield f"   {name:<12} {shown_assignments(link.assignments)} (term {link.term}, index {link.index})"


def are_zone_steps(data: bytes) -> bool:
    """Whether the file has such steps, right or wrong: an object with `op`, or a list that begins with one."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    first = found[0] if isinstance(found, list) and found else found
    return isinstance(first, dict) and "op" in first


def explained_steps(data: bytes, origin: str) -> Iterator[Explained]:
    """Raises ConfigError."""
    given = _read(data, origin)
    try:
        found = list(explain(given))
    except NotAStep as error:
        raise ConfigError(f"{origin}: {error}") from error
    for number, (step, (result, after)) in enumerate(zip(given, found, strict=True)):
        yield Explained(result=result, after=after, number=number, op=step.op)


def _read(data: bytes, name: str) -> list[ExplainStep]:
    """The steps of a file. Raises ConfigError."""
    try:
        found = msgspec.json.decode(data, type=list[ExplainStep] | ExplainStep)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{name}: {error}; a step looks like {EXAMPLE}") from error
    return [found] if isinstance(found, ExplainStep) else found


def shown_assignments(assignments: Assignments | AssignmentsTold, called: Callable[[str], str] = str) -> str:
    words = sorted(map(called, assignments.peers))
    words += sorted(f"{called(node)} (learner)" for node in assignments.learners)
    words += ["by force"] if assignments.force else []
    words += ["after a reset"] if assignments.from_reset else []
    return " ".join(words) or "none"
