"""Which rules did a run need? Those that stood before a decision, and how often.

A rule that nothing ever asks for is not tested by a run, however well that one ends. Members ask for some rules when
they are made and look at the answer later; it is the looking that counts.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from holdfast.core.rules import Rules


class _Answer(int):
    """Whether a rule holds, and a note each time that somebody decides by it."""

    name: str
    asked: Counter[str]

    def __bool__(self) -> bool:
        self.asked[self.name] += 1
        return self != 0


class AskedRules(Rules):
    """Rules that remember how often each of them stood before a decision."""

    __slots__ = ("asked",)

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        super().__init__(without)
        self.asked: Counter[str] = Counter()
        """By name; a rule that no decision needed is not in it."""

    def holds(self, name: str) -> bool:
        """Whether the rule is in force; looking at the answer counts, having it does not."""
        answer = _Answer(super().holds(name))
        answer.name, answer.asked = name, self.asked
        return cast("bool", answer)
