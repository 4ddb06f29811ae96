"""States as data: what a thing may become, and by what. A change that is not in its table is a bug, told by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from holdfast.errors import InvariantBroken

State = TypeVar("State", bound=StrEnum)
Step = TypeVar("Step", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Lifecycle(Generic[State, Step]):
    """The states of one kind of thing. `docs/states.md` shows these tables as pictures."""

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


def _word(state: StrEnum) -> str:
    return state.value.replace(" ", "_").replace("-", "_")
