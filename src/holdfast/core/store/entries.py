"""What are the entries of a map in one partition kept in? A dictionary, or what does the same in less memory.

The dictionary is the reference, and what plain Python and the simulator use. Where there is compiled code a member uses
`entry_table.EntryTable` (a compiled module). Its values are made when they are asked for; its order is another one in
every process, so nothing may rest on the order of entries.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TypeAlias

Entries: TypeAlias = MutableMapping[bytes, bytes]
"""Keys to values, both as bytes objects and never as what only behaves like them."""
NewEntries: TypeAlias = Callable[[], Entries]
"""Makes one that is empty."""
