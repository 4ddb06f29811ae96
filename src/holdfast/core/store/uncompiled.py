"""Stands for the module `cython` where nothing is compiled: `from holdfast.core.store import uncompiled as cython`.

The build (`build_lane.py`) replaces that import by Cython's own. Here types are only types, and what only C can do is
behind `if cython.compiled`.
"""

from __future__ import annotations

# ruff: noqa: A001, ARG001, PYI042 -- C's names, and arguments for C only
from typing import TypeAlias, TypeVar

T = TypeVar("T")
_Whole = int

compiled: bool = False
int: TypeAlias = _Whole
uint: TypeAlias = _Whole
longlong: TypeAlias = _Whole
bint: TypeAlias = bool
Py_ssize_t: TypeAlias = _Whole
void: TypeAlias = None


def declare(kind: type[T], value: T) -> T:
    return value


def cclass(kind: type[T]) -> type[T]:
    return kind


def cfunc(function: T) -> T:
    return function


def ccall(function: T) -> T:
    return function


def inline(function: T) -> T:
    return function


class exceptval:  # noqa: N801
    def __init__(self, *, check: bool) -> None: ...

    def __call__(self, function: T) -> T:
        return function
