"""The entry that a processor gets, and what becomes of it."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest

from holdfast.core.model.processors import EntryChange, ProcessorCall, ProcessorResult, ProcessorRun
from holdfast.errors import ProtocolError
from holdfast.serialization.entry_processors import Entry, PayloadReader, Processor, run_processor
from holdfast.serialization.serializers import Serializers

SERIALIZERS = Serializers()


def result_of(
    function: Processor, value: object = None, *, argument: object = None, payload: bytes | None = None
) -> ProcessorResult:
    stored = None if value is None else SERIALIZERS.dump(value)
    given = b"" if argument is None else SERIALIZERS.dump(argument)
    run = ProcessorRun(ProcessorCall("do", given, payload), "m", SERIALIZERS.dump("k"), stored)
    return run_processor(function, run, SERIALIZERS)


def test_a_function_sees_its_entry() -> None:
    seen: list[object] = []

    def look(entry: Entry) -> None:
        seen.extend((entry.map, entry.key, entry.value, entry.argument))

    assert result_of(look, {"a": 1}, argument=5) == ProcessorResult()
    assert seen == ["m", "k", {"a": 1}, 5]
    seen.clear()
    result_of(look)
    assert seen == ["m", "k", None, None]


def test_changes_are_seen_by_the_function_and_the_last_one_counts() -> None:
    def change(entry: Entry) -> object:
        entry.remove()
        assert entry.value is None
        entry.value = [1]
        return entry.value

    stored = SERIALIZERS.dump([1])
    assert result_of(change, 5) == ProcessorResult(EntryChange.STORE, stored, stored)


def test_removing() -> None:
    def remove(entry: Entry) -> bool:
        entry.value = 1
        entry.remove()
        return True

    assert result_of(remove, 5).change is EntryChange.REMOVE
    assert result_of(remove).change is EntryChange.NONE, "there is no entry"


def test_errors_are_results_and_change_nothing() -> None:
    def none(entry: Entry) -> None:
        entry.value = None

    def opaque(entry: Entry) -> object:
        entry.value = 1
        return object()

    def long(entry: Entry) -> None:
        raise KeyError("x" * 10_000)

    assert "call entry.remove()" in result_of(none).error
    assert result_of(opaque).error.startswith("entry processor 'do' raised TypeError")
    assert result_of(opaque).change is EntryChange.NONE
    assert len(result_of(long).error) < 1000


def test_fields_are_read_as_they_were_written() -> None:
    payload = (
        b"\x01" + pack(">bhiqfd", -1, -2, -3, -4, 0.5, 0.25) + pack(">i", 2) + "é".encode() + pack(">i", -1)
    )

    def read(entry: Entry) -> object:
        fields = entry.argument
        assert fields.read_boolean() is True
        numbers = [fields.read_byte(), fields.read_short(), fields.read_int(), fields.read_long()]
        assert numbers == [-1, -2, -3, -4]
        assert (fields.read_float(), fields.read_double()) == (0.5, 0.25)
        assert (fields.read_string(), fields.read_string()) == ("é", None)
        return fields.payload

    result = result_of(read, payload=payload)
    assert result.error == ""
    with pytest.raises(ProtocolError, match="ends after 2 bytes"):
        PayloadReader(b"\0\0").read_int()
    with pytest.raises(ProtocolError, match="ends after"):
        PayloadReader(pack(">i", -5)).read_string()


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "raised SystemExit: 3"),
        (asyncio.CancelledError(), "raised CancelledError: "),
        (_Unprintable(), "raised _Unprintable, whose text cannot be shown"),
        (ValueError("half \ud800 of a pair"), "raised ValueError: half ? of a pair"),
    ],
)
def test_any_error_is_a_result_with_a_text_that_can_be_sent(error: BaseException, text: str) -> None:
    """A thread that ended would be missing from then on, and a text that no message can hold would end the member."""

    def fail(entry: Entry) -> None:
        raise error

    result = result_of(fail)
    assert text in result.error
    assert result.error.encode()
