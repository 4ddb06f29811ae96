"""What are the entries of a map in one partition kept in? A dictionary, or what does the same in less memory.

The dictionary is the reference, and what plain Python and the simulator use. Where there is compiled code a member uses
`EntryTable` (`entry_table.pyx`), which makes keys and values when they are asked for. Of it holds:

- store/E-1: An entry is one block of memory: a head of 8 bytes, the key, the value. Of a value of `LARGE` bytes or more
  the block has a reference, so that it is shared with whoever else holds it, and never copied to be listed.
- store/E-2: A slot of the index is 8 bytes: where the block is (48 bits, a multiple of 16), and in the rest 20 bits of
  the key's hash: a block is hardly ever looked at in vain, and a slot knows where it belongs without its block.
- store/E-3: The index is of segments of at most `SLOTS_MAX` slots, found by the first bits of the hash (extendible
  hashing). A segment that is full grows by a quarter, or is split in two; one that is nearly empty shrinks, or is
  merged with its neighbour. So no single operation moves more than one segment, however many entries there are.
- store/E-4: Probing is linear, and a removal moves back what follows: without tombstones churn leaves nothing.
- store/E-5: Keys are hashed as Python hashes bytes, with this process's secret: whoever chooses keys cannot know which
  of them meet. Where they do meet (the seed is known, or a test wants it) segments grow beyond the limit, and the
  directory never has more than a few places for each segment that entries could fill.
- store/E-7: An entry that ends has 20 bytes more in its block (its time to live, since when, its place in a heap), or
  44 if it ends when it was not used for long, and 8 in that heap, which is sorted by what the blocks say. What replaces
  an entry's value keeps its ending; whoever takes the entry out takes that out, too: nothing is noted of what is gone.
- store/E-8: All entries are packed segment by segment, in the order of their hashes' first bits. What was come to is
  known by a hash, and of the segment that it is in by the hashes of its entries, which are looked for again: so entries
  may come, go and change meanwhile, and segments too. Each entry that was there from the beginning to the end is
  packed, or named as one that cannot be.
- store/E-9: A table that is dropped or cleared is empty at once. While a member runs, what it had is freed some at a
  time (`FreesLater`), for much is to be freed at once when a partition has moved away; each new entry of any table
  frees some, too, so that it does not become more.
- store/E-6: The order of an iteration is that of the hashes: another one in every process. It goes on while values are
  overwritten, and raises RuntimeError after a key has come or gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import Protocol, TypeAlias, runtime_checkable

from holdfast.core.store.expiry import Endings, Expiry

Entries: TypeAlias = MutableMapping[bytes, bytes]
"""Keys to values, both as bytes objects and never as what only behaves like them."""


class Packing(Protocol):
    """Packs all entries, one chunk after the other, while entries come and go (store/E-8)."""

    @property
    def ended(self) -> bool:
        """Whether all entries have been come to."""

    def pack(self, limit: int, *, some: bool) -> tuple[bytes, bytes, bool]:
        """Pack the next entries, as many as fit into `limit` bytes with `ENTRY_OVERHEAD` each, or one when `some`.
        Answers sizes and data as in `Puts`, and whether the next did not fit. It comes to an end before, too, when as
        much as that was put apart: what has a large value or ends, and keys whose hashes are equal.
        """

    def apart(self) -> list[bytes]:
        """Hand over the keys of what was put apart."""

    def rest(self) -> list[bytes]:
        """Hand over the keys of all that were not packed, and end."""


@runtime_checkable
class PackedEntries(Protocol):
    """What entries can be stored in with no object for each: a table."""

    def put_all(
        self, sizes: bytes, data: bytes, touched: dict[bytes, bytes | None] | None, counts: bool
    ) -> None:
        """Store these keys and values, packed as in `core.model.records.Puts`, whose sizes are right. None of these
        entries ends by itself. `touched` gets the former value of each key that it does not have; unless it `counts`:
        then the digests that are kept change now, but for keys that are in `touched`.
        """

    def pack(
        self, keys: list[bytes], begin: int, limit: int, *, some: bool
    ) -> tuple[bytes, bytes, int, bool]:
        """Pack the entries of these keys from number `begin` on, as many as fit into `limit` bytes with
        `ENTRY_OVERHEAD` each, or one when `some`; without keys that are not there, and up to the first that has a large
        value or ends. Answers sizes and data as in `Puts`, of how many keys that is, and whether the next did not fit.
        """

    def digests(self) -> list[int]:
        """The digests of the 64 key ranges (`digest.RangeDigests.digests`), counted anew."""

    def keep_digests(self, sums: list[int] | None) -> None:
        """Begin with these, and keep them up to date where that is asked for; None: keep none."""

    def kept_digests(self) -> list[int] | None:
        """What they are now; None: none are kept."""

    def absorb(self, touched: dict[bytes, bytes | None]) -> None:
        """These keys have changed, from what is given (None: not there), and were not counted."""

    def packing(self) -> Packing:
        """What packs all entries."""

    def keys_in(self, sizes: bytes, data: bytes) -> Collection[bytes]:
        """The keys of packed entries, in as little memory. Raises ValueError when the sizes are not right."""

    def endings(self) -> tuple[Mapping[bytes, Expiry], Endings]:
        """When entries end, to be read (as they are at the time of the reading), and to be changed."""


class FreesLater(Protocol):
    """What frees the entries of tables that are no more (store/E-9)."""

    def begin_freeing(self) -> None:
        """From now on somebody calls `free_later` from time to time. Each who begins has to end."""

    def end_freeing(self) -> None:
        """One who began does not any more. After the last one tables are freed at once."""

    def free_later(self, most: int, /) -> bool:
        """Free so many entries, or fewer that are as much work; answers whether there are others."""


NewEntries: TypeAlias = Callable[[], Entries]
"""Makes one that is empty."""
