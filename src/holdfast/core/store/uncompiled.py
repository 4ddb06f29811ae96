"""What C code is written with, where nothing is compiled: `entries_cy` and others import these names.

The build (`build_lane.py`) puts Cython's own in the place of that one import. So Cython is needed to build and never to
run: types are only types here, and what only C can do stands behind `if cython.compiled`.
"""

from __future__ import annotations

# ruff: noqa: ARG004, PYI042 -- what C is told and Python need not know, in C's names
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Whole = int


class cython:  # noqa: N801  (it stands for the module of that name)
    """As much of Cython's pure Python mode as is used."""

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
        """A variable of the module that is one of C."""
        return value

    @staticmethod
    def cast(kind: object, value: Any) -> Any:
        """The value as one of this kind."""
        return value

    @staticmethod
    def address(value: object) -> Any:
        """Where it is in memory."""
        raise NotImplementedError("only what is compiled has addresses")

    @staticmethod
    def cclass(kind: type[T]) -> type[T]:
        """A class whose attributes are those of C."""
        return kind

    @staticmethod
    def cfunc(function: T) -> T:
        """A function that only C calls."""
        return function

    @staticmethod
    def inline(function: T) -> T:
        """And that becomes a part of who calls it."""
        return function


def memcpy(to: object, source: object, count: int) -> None:
    """Copy bytes."""
    raise NotImplementedError("only what is compiled has addresses")


def memcmp(one: object, other: object, count: int) -> int:
    """Compare bytes: 0 when they are equal."""
    raise NotImplementedError("only what is compiled has addresses")


def resize(content: bytearray, count: int) -> int:
    """Give it so many bytes; new ones are to be filled in before anybody sees them."""
    raise NotImplementedError("only what is compiled has addresses")


def bytes_of(content: bytearray) -> Any:
    """Where its bytes are in memory, until it is resized."""
    raise NotImplementedError("only what is compiled has addresses")


class EntryTable(dict[bytes, bytes]):
    """Stands for `core.store.entry_table.EntryTable`: nothing is one where nothing is compiled."""

    def look(self, key: Any, key_size: int, value_size: Any) -> Any:
        """Where the value is, and in `value_size` how long; NULL: the key is not there."""
        raise NotImplementedError("only what is compiled has addresses")

    def put(
        self, key: Any, key_size: int, value: Any, value_size: int, whole: bytes | None, counted: bool
    ) -> int:
        """Store copies of these; `whole` is the value as an object, if there is one. `counted`: the digests that the
        table keeps change now.
        """
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
        """The same of an entry that ends so; with both times 0, of one that does not."""
        raise NotImplementedError("only what is compiled has addresses")

    def some_end(self) -> bool:
        """Whether there are entries that end."""
        raise NotImplementedError("only what is compiled has addresses")

    def has_ended(self, key: Any, key_size: int, now_ns: int, touch: bool, ends: Any) -> bool:
        """Whether the entry has ended; a living one counts as used when `touch`. `ends`: whether it ever does."""
        raise NotImplementedError("only what is compiled has addresses")

    def discard(self, key: Any, key_size: int) -> bool:
        """Take the entry out; answers whether there was one."""
        raise NotImplementedError("only what is compiled has addresses")
