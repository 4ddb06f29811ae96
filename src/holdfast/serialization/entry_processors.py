"""Entry processors: the entry that a function gets, and what becomes of its result.

```python
def sell(entry):
    stock = entry.value or 0
    if stock < entry.argument:
        return False
    entry.value = stock - entry.argument
    return True
```
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from holdfast.core.model.processors import EntryChange, ProcessorResult, ProcessorRun
from holdfast.errors import ProtocolError
from holdfast.serialization.serializers import Serializers

ERROR_SHOWN = 500
"""Characters of the text of an error."""
NULL_LENGTH = -1


class PayloadReader:
    """The fields of an `IdentifiedDataSerializable` that a client sent: read them as its `write_data` wrote them."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self.payload):
            raise ProtocolError(f"the argument of the entry processor ends after {len(self.payload)} bytes")
        taken, self._at = self.payload[self._at : end], end
        return taken

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def read_boolean(self) -> bool:
        return self._take(1) != b"\0"

    def read_byte(self) -> int:
        return int(self._number(">b"))

    def read_short(self) -> int:
        return int(self._number(">h"))

    def read_int(self) -> int:
        return int(self._number(">i"))

    def read_long(self) -> int:
        return int(self._number(">q"))

    def read_float(self) -> float:
        return float(self._number(">f"))

    def read_double(self) -> float:
        return float(self._number(">d"))

    def read_bytes(self) -> bytes | None:
        """With its length before it, as a byte array."""
        size = self.read_int()
        return None if size == NULL_LENGTH else self._take(size)

    def read_string(self) -> str | None:
        encoded = self.read_bytes()
        return None if encoded is None else encoded.decode()


class Entry:
    """The entry of one key, for the time of one call."""

    def __init__(self, run: ProcessorRun, serializers: Serializers) -> None:
        self._run = run
        self._serializers = serializers
        self._change = EntryChange.NONE
        self._stored = run.value

    @property
    def map(self) -> str:
        return self._run.map

    @property
    def key(self) -> Any:
        return self._serializers.load(self._run.key)

    @property
    def argument(self) -> Any:
        """The caller's argument: a value, or a `PayloadReader` if a client named the processor by numbers."""
        call = self._run.call
        if call.payload is not None:
            return PayloadReader(call.payload)
        return self._serializers.load(call.argument or None)

    @property
    def value(self) -> Any:
        """None: there is no entry."""
        return self._serializers.load(self._stored)

    @value.setter
    def value(self, value: object) -> None:
        if value is None:
            raise TypeError("None cannot be a value: call entry.remove()")
        self._stored, self._change = self._serializers.dump_value(value), EntryChange.STORE

    def remove(self) -> None:
        self._stored = None
        self._change = EntryChange.REMOVE if self._run.value is not None else EntryChange.NONE

    def result(self, answer: object) -> ProcessorResult:
        """The change of the entry, now that the function has returned `answer`."""
        returned = None if answer is None else self._serializers.dump(answer)
        value = self._stored if self._change is EntryChange.STORE else None
        return ProcessorResult(self._change, value or b"", returned)


Processor = Callable[[Entry], object]


def run_processor(function: Processor, run: ProcessorRun, serializers: Serializers) -> ProcessorResult:
    """Call the function; its error is a result, too."""
    entry = Entry(run, serializers)
    try:
        return entry.result(function(entry))
    except BaseException as error:  # noqa: BLE001  (`SystemExit` would end the thread, which others need)
        return ProcessorResult(error=f"entry processor {run.call.name!r} raised {_shown(error)}")


def _shown(error: BaseException) -> str:
    """The text may have been taken from a value: half of a surrogate pair fits into no message."""
    name = type(error).__name__
    try:
        text = f"{name}: {error}"[:ERROR_SHOWN]
    except BaseException:  # noqa: BLE001  (it is the function's code, too)
        text = f"{name}, whose text cannot be shown"
    return text.encode(errors="replace").decode()
