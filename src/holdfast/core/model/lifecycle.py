"""States as data: what a thing may become, and by what; and what comes of a message, by what it finds.

A change that is not in its table is a bug, told by name. `docs/states.md` shows the tables.
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
    """The states of one kind of thing."""

    of: str
    """What goes through these states, in words."""
    begins: State
    table: Mapping[tuple[State, Step], State]
    """State and step -> the state after it."""

    def after(self, state: State, step: Step) -> State:
        """The state after this step. Raises InvariantBroken when there is no such step in this state."""
        found = self.table.get((state, step))
        if found is None:
            raise InvariantBroken(f"{self.of}: {step.value!r} cannot happen when it is {state.value!r}")
        return found

    def picture(self) -> str:
        """The table as a state diagram in Mermaid's language."""
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
    """What becomes of a message."""

    TAKEN = "taken"
    WAITS = "waits"
    """It is kept, and looked at again when the table or the view has changed."""
    REFUSED = "refused"
    """Who sent it is told why, in words: so nobody waits for an answer that never comes."""


@dataclass(frozen=True, slots=True)
class Case(Generic[Situation]):
    """Something that a message may find where it arrives."""

    finds: str
    """In words, for people."""
    applies: Callable[[Situation], bool]
    handling: Handling
    why: Callable[[Situation], str] = lambda situation: ""
    """What its sender is told."""


@dataclass(frozen=True, slots=True)
class Cases(Generic[Situation]):
    """What comes of one kind of message: the first case that applies says so, and where none does it is taken."""

    of: str
    cases: tuple[Case[Situation], ...]

    def judge(self, situation: Situation) -> tuple[Handling, str]:
        """What becomes of the message, and what its sender is told."""
        for case in self.cases:
            if case.applies(situation):
                return case.handling, case.why(situation)
        return Handling.TAKEN, ""

    def listing(self) -> str:
        """The cases as a table in Markdown, in the order in which they are looked at."""
        rows = [("finds", "and is"), ("---", "---")]
        rows += [(case.finds, case.handling) for case in self.cases]
        rows.append(("nothing of these", Handling.TAKEN))
        return "\n".join(f"| {finds} | {handling} |" for finds, handling in rows)


def _word(state: StrEnum) -> str:
    return state.value.replace(" ", "_").replace("-", "_")
