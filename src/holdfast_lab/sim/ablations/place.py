"""Places where members decide by a rule, with their replacement without it."""

# ruff: noqa: ARG001 - a twin is given what the original is given

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from holdfast_lab.sim.replacing import Method


@dataclass(frozen=True, slots=True)
class Place:
    owner: type | ModuleType
    method: str
    twin: Method
    """Called with the original method, and then with the method's arguments."""
    when: Callable[..., Any] | None = None
    """Whether the rule matters in a call with these arguments; otherwise the original is used. None: in all
    calls.
    """


def nothing(_: Method, *given: Any, **named: Any) -> None: ...


def always(_: Method, *given: Any, **named: Any) -> bool:
    return True


def never(_: Method, *given: Any, **named: Any) -> bool:
    return False
