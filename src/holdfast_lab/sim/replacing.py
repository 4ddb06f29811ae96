"""What stands in the place of something else, for one run, and how everything is as it was afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Method = Callable[..., Any]


class Replaced:
    """What has been put in the place of something else, and how to take it back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: object, name: str, by: Callable[[Method], Method]) -> None:
        """Put `by(what is there)` in the place of a method of a class, or of a function of a module."""
        original = vars(owner)[name]
        setattr(owner, name, by(original))
        self._undo.append(partial(setattr, owner, name, original))

    def end(self) -> None:
        """Everything is as it was."""
        while self._undo:
            self._undo.pop()()
