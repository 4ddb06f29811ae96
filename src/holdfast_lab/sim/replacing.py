"""Temporary replacement of methods, functions and constants for one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Method = Callable[..., Any]


class Replaced:
    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: object, name: str, by: Callable[[Method], Method]) -> None:
        """Replace a method of a class, or a function of a module, with `by(original)`."""
        original = vars(owner)[name]
        setattr(owner, name, by(original))
        self._undo.append(partial(setattr, owner, name, original))

    def end(self) -> None:
        while self._undo:
            self._undo.pop()()
