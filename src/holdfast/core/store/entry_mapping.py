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
- store/E-6: The order of an iteration is that of the hashes: another one in every process. It goes on while values are
  overwritten, and raises RuntimeError after a key has come or gone.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TypeAlias

Entries: TypeAlias = MutableMapping[bytes, bytes]
"""Keys to values, both as bytes objects and never as what only behaves like them."""
NewEntries: TypeAlias = Callable[[], Entries]
"""Makes one that is empty."""
