"""Two kinds of tables for state machines: a `Lifecycle` has the states and the steps between them; `Cases` decide
whether a message is accepted, has to wait, or is rejected.

A step that is not in its table is a bug, and raises an error that names it. `docs/states.md` shows all tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Generic, TypeVar

from holdfast.errors import InvariantBroken

State = TypeVar("State", bound=StrEnum)
Step = TypeVar("Step", bound=StrEnum)
Situation = TypeVar("Situation")


@dataclass(frozen=True, slots=True)
class Lifecycle(Generic[State, Step]):
    of: str
    begins: State
    table: Mapping[tuple[State, Step], State]

    def after(self, state: State, step: Step) -> State:
        """Raises InvariantBroken if the state has no such step."""
        found = self.table.get((state, step))
        if found is None:
            raise InvariantBroken(f"{self.of}: {step.value!r} cannot happen when it is {state.value!r}")
        return found

    def picture(self) -> str:
        """The table as a state diagram for Mermaid."""
        lines = ["stateDiagram-v2", f"    [*] --> {_word(self.begins)}"]
        steps: dict[tuple[State, State], list[str]] = {}
        for (state, step), after in self.table.items():
            steps.setdefault((state, after), []).append(step.value)
        lines += [
            f"    {_word(state)} --> {_word(after)}: {', or '.join(words)}"
            for (state, after), words in steps.items()
        ]
        return "\n".join(lines)


@unique
class Handling(StrEnum):
    TAKEN = "taken"
    WAITS = "waits"
    """Until the table or the view has changed."""
    REFUSED = "refused"
    """The sender gets the reason."""


@dataclass(frozen=True, slots=True)
class Case(Generic[Situation]):
    finds: str
    applies: Callable[[Situation], bool]
    handling: Handling
    why: Callable[[Situation], str] = lambda situation: ""


@dataclass(frozen=True, slots=True)
class Cases(Generic[Situation]):
    """The handling of one kind of message: the first case that applies decides. If none does, the message is taken."""

    of: str
    cases: tuple[Case[Situation], ...]

    def judge(self, situation: Situation) -> tuple[Handling, str]:
        for case in self.cases:
            if case.applies(situation):
                return case.handling, case.why(situation)
        return Handling.TAKEN, ""

    def listing(self) -> str:
        """The cases as a Markdown table, in the order in which they are checked."""
        rows = [("finds", "and is"), ("---", "---")]
        rows += [(case.finds, case.handling) for case in self.cases]
        rows.append(("nothing of these", Handling.TAKEN))
        return "\n".join(f"| {finds} | {handling} |" for finds, handling in rows)


def _word(state: StrEnum) -> str:
    return state.value.replace(" ", "_").replace("-", "_")
