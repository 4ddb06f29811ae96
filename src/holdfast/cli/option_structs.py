"""Gathers options of a command into one struct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

Command = Callable[..., Any]


def into(name: str, kind: type, *options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Add these options, and give the command a `kind` of their values as its parameter `name`.

    `kind` is a dataclass with a field for each of the options.
    """
    names = [each.name for each in fields(kind)]

    def decorated(command: Command) -> Command:
        @wraps(command)
        def called(*call: Any, **given: Any) -> Any:
            return command(*call, **{name: kind(**{each: given.pop(each) for each in names})}, **given)

        made: Command = called
        for option in reversed(options):
            made = option(made)
        return made

    return decorated
