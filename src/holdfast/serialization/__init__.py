"""Values of programs as the bytes that all clients share, and changes of entries as values.

`holdfast.Member` and `holdfast.aio` write and read the same, so what one of them has stored the other gives back.
"""

from holdfast.serialization.entry_changes import ChangeKind, EntryChange
from holdfast.serialization.serializers import Codec, Identified, Integers, Serializers
from holdfast.wire.values import Serialized

__all__ = ["ChangeKind", "Codec", "EntryChange", "Identified", "Integers", "Serialized", "Serializers"]
