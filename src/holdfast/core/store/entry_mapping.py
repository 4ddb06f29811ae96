"""The entries of a map in one partition: a dictionary, or a table that needs less memory.

The dictionary is the reference; plain Python and the simulator use it. A member with compiled code uses `EntryTable`
(`entry_table.pyx`), which makes key and value objects on demand. Rules of the table:

- store/E-1: An entry is one block of memory: a head of 8 bytes, the key, the value. For a value of `LARGE` bytes or
  more the block has a reference to an object, which is shared with all its users and never copied.
- store/E-2: A slot of the index has 8 bytes: 48 bits for the address of the block, which is a multiple of 16, and in
  the rest 20 bits of the key's hash. So a lookup rarely reads a block in vain.
- store/E-3: The index consists of segments of at most `SLOTS_MAX` slots, found by the first bits of the hash
  (extendible hashing). A full segment grows by a quarter or is split; a nearly empty one shrinks or is merged. So no
  operation moves more than one segment.
- store/E-4: Probing is linear, and a removal moves back what follows: there are no tombstones that churn could pile up.
- store/E-5: Keys are hashed as Python hashes bytes, with the secret of the process, so a client cannot choose keys that
  collide. If keys collide anyway (the seed is known, or in a test), segments grow beyond the limit, and the directory
  has at most a few places for each segment that entries could fill.
- store/E-7: An entry that expires has 20 more bytes in its block (time to live, since when, its place in a heap), or 44
  with a maximum idle time, and 8 bytes in the heap, which is sorted by the blocks. Replacing a value keeps the ending;
  removing an entry removes its ending from the heap.
- store/E-8: All entries are packed segment by segment, in the order of the first bits of their hashes. The position is
  a hash, and within a segment a list of hashes that are looked up again; so entries and segments may change on the way.
  Each entry that was there from the beginning to the end is packed, or named as one that cannot be packed.
- store/E-9: A table that is dropped or cleared is empty at once, but its blocks are freed in small amounts while the
  member runs (`FreesLater`): a partition that has moved away leaves many. Each new entry of any table frees some, too,
  so that they do not pile up.
- store/E-6: Iteration is in the order of the hashes, which differs between processes. It continues while values are
  overwritten, and raises RuntimeError after a key was added or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Protocol, TypeAlias, runtime_checkable

from holdfast.core.store.expiry import Endings, Expiry

Entries: TypeAlias = MutableMapping[bytes, bytes]
"""Real bytes objects, never objects that only behave like bytes."""


class Packing(Protocol):
    """Packs all entries, one chunk after the other, while entries come and go (store/E-8)."""

    @property
    def ended(self) -> bool: ...

    def pack(self, limit: int, *, some: bool) -> tuple[bytes, bytes, bool]:
        """The next entries that fit into `limit` bytes with `ENTRY_OVERHEAD` each, at least one if `some`. Returns
        sizes and data as in `Puts`, and whether the next entry did not fit. Also stops when as many bytes of entries
        were set apart: large values, entries that expire, and keys with equal hashes.
        """

    def apart(self) -> list[bytes]: ...

    def rest(self) -> list[bytes]:
        """All entries that were not packed; ends the packing."""


@runtime_checkable
class PackedEntries(Protocol):
    """A table: entries without an object for each."""

    def put_all(
        self, sizes: bytes, data: bytes, touched: dict[bytes, bytes | None] | None, counts: bool
    ) -> None:
        """Packed as in `core.model.records.Puts`, whose sizes must be right. None expires. `touched` gets the former
        value of each key that it lacks. If `counts`, the kept digests change instead, except for keys in `touched`.
        """

    def pack(
        self, keys: list[bytes], begin: int, limit: int, *, some: bool
    ) -> tuple[bytes, bytes, int, bool]:
        """The entries of these keys from number `begin` on that fit into `limit` bytes with `ENTRY_OVERHEAD` each, at
        least one if `some`. Skips keys that are gone; stops at the first large value or entry that expires. Returns
        sizes and data as in `Puts`, the number of keys, and whether the next did not fit.
        """

    def digests(self) -> list[int]:
        """Computed from the entries, for the 64 key ranges."""

    def keep_digests(self, sums: list[int] | None) -> None: ...

    def kept_digests(self) -> list[int] | None: ...

    def absorb(self, touched: dict[bytes, bytes | None]) -> None:
        """Former values (None: not there) of changes that were not counted yet."""

    def packing(self) -> Packing: ...

    def sample(self, begin: int, count: int) -> list[bytes]:
        """So many different keys, or all if there are fewer. `begin`: a hash, near which they are."""

    def keys_in(self, sizes: bytes, data: bytes) -> Collection[bytes]:
        """The keys, in as little memory. Raises ValueError if the sizes are wrong."""

    def endings(self) -> tuple[Mapping[bytes, Expiry], Endings]:
        """A live view, and the interface that changes it."""


class FreesLater(Protocol):
    """Frees the entries of dropped tables (store/E-9)."""

    def begin_freeing(self) -> None:
        """`free_later` will be called regularly, and `end_freeing` in the end."""

    def end_freeing(self) -> None:
        """After the last one, tables are freed at once."""

    def free_later(self, most: int, /) -> bool:
        """So many entries, or fewer that are as much work; returns whether there are more."""


NewEntries: TypeAlias = Callable[[], Entries]
