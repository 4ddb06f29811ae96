"""Stand-ins for Cython's names where nothing is compiled; `entries_cy` and others import them.

The build (`build_lane.py`) replaces that import by Cython's own, so Cython is needed only to build. Here types are only
types, and what only C can do is behind `if cython.compiled`.
"""

from __future__ import annotations

# ruff: noqa: ARG004, PYI042 -- arguments for C only, with C's names
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Whole = int


class cython:  # noqa: N801  (it stands for the module of that name)
    compiled: bool = False
    NULL = None
    int: TypeAlias = _Whole
    uint: TypeAlias = _Whole
    longlong: TypeAlias = _Whole
    bint: TypeAlias = bool
    Py_ssize_t: TypeAlias = _Whole
    p_uchar: TypeAlias = Any
    p_longlong: TypeAlias = Any
    void: TypeAlias = None

    @staticmethod
    def declare(kind: type[T], value: T) -> T:
        return value

    @staticmethod
    def cast(kind: object, value: Any) -> Any:
        return value

    @staticmethod
    def address(value: object) -> Any:
        raise NotImplementedError("only what is compiled has addresses")

    @staticmethod
    def cclass(kind: type[T]) -> type[T]:
        return kind

    @staticmethod
    def cfunc(function: T) -> T:
        return function

    @staticmethod
    def inline(function: T) -> T:
        return function


def memcpy(to: object, source: object, count: int) -> None:
    raise NotImplementedError("only what is compiled has addresses")


def memcmp(one: object, other: object, count: int) -> int:
    """Compare bytes: 0 when they are equal."""
    raise NotImplementedError("only what is compiled has addresses")


def resize(content: bytearray, count: int) -> int:
    """Resize; the caller fills in new bytes before anyone reads them."""
    raise NotImplementedError("only what is compiled has addresses")


def bytes_of(content: bytearray) -> Any:
    raise NotImplementedError("only what is compiled has addresses")


class EntryTable(dict[bytes, bytes]):
    """Stands for `core.store.entry_table.EntryTable`; no object is one where nothing is compiled."""

    def look(self, key: Any, key_size: int, value_size: Any) -> Any:
        """Address of the value, and its length in `value_size`; NULL: the key is not there."""
        raise NotImplementedError("only what is compiled has addresses")

    def put(
        self, key: Any, key_size: int, value: Any, value_size: int, whole: bytes | None, counted: bool
    ) -> int:
        """Store copies. `whole`: the value as an object, if there is one. `counted`: the table's digests change now."""
        raise NotImplementedError("only what is compiled has addresses")

    def put_ending(
        self,
        key: Any,
        key_size: int,
        value: Any,
        value_size: int,
        ttl_ms: int,
        max_idle_ms: int,
        now_ns: int,
        whole: bytes | None,
        counted: bool,
    ) -> int:
        """The same for an entry that expires; with both times 0 it does not."""
        raise NotImplementedError("only what is compiled has addresses")

    def some_end(self) -> bool:
        raise NotImplementedError("only what is compiled has addresses")

    def has_ended(self, key: Any, key_size: int, now_ns: int, touch: bool, ends: Any) -> bool:
        """Whether the entry has ended; if not, it counts as used when `touch`. `ends`: whether it expires at all."""
        raise NotImplementedError("only what is compiled has addresses")

    def discard(self, key: Any, key_size: int) -> bool:
        raise NotImplementedError("only what is compiled has addresses")
