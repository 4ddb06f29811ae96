"""Where a member decides by a rule, and what it does there without it."""

# ruff: noqa: ARG001 - a twin is given what the original is given

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from holdfast_lab.sim.replacing import Method


@dataclass(frozen=True, slots=True)
class Place:
    """A method that decides by a rule, and its careless twin."""

    owner: type | ModuleType
    method: str
    twin: Method
    """What takes its place. It is given the method itself, and then what the method is given."""
    when: Callable[..., Any] | None = None
    """Whether the rule stands before a decision in a call with these arguments: in all others the method does what it
    always does. None: in each.
    """


def nothing(_: Method, *given: Any, **named: Any) -> None:
    """Do nothing instead."""


def always(_: Method, *given: Any, **named: Any) -> bool:
    """Say yes, whatever is asked."""
    return True


def never(_: Method, *given: Any, **named: Any) -> bool:
    """Say no, whatever is asked."""
    return False
