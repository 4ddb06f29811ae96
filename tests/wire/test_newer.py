"""What newer members say, and newer files hold: read as far as it can be, or refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core import messages as m
from holdfast.core.model.ids import MemberId
from holdfast.core.model.journal_entries import MapSnapshot, PlainView, Seen, Snapshot, level_of, seen
from holdfast.core.model.levels import HIGHEST, LOWEST, SEGMENT_FORMATS, FeatureLevels
from holdfast.core.model.views import MemberInfo, View
from holdfast.errors import NewerFiles, ProtocolError, UnknownMessage
from holdfast.wire import checkpoint
from holdfast.wire.checkpoint import encode_checkpoint, read_checkpoint
from holdfast.wire.codec import decode, encode
from holdfast.wire.journal_blocks import ORIGIN, read_header, segment_header

INFO = MemberInfo(MemberId("aa"), 1, "127.0.0.1", 5701, "127.0.0.1", 5801, "anna")
BEAT = m.Heartbeat(MemberId("aa"), 1, 1)


def said(message: m.Message, *more: Any) -> list[Any]:
    """What is in a message, and behind it what only a newer one knows."""
    return [*msgspec.msgpack.decode(encode(message)), *more]


# -- messages


@pytest.mark.rule("wire/C-1")
def test_what_a_newer_member_adds_behind_is_left_out() -> None:
    assert decode(msgspec.msgpack.encode(said(BEAT, "new", {"and": ["newer"]}))) == BEAT


@pytest.mark.rule("wire/C-1")
def test_so_is_what_it_adds_to_the_parts_of_a_message() -> None:
    info = [*msgspec.msgpack.decode(msgspec.msgpack.encode(INFO)), "new"]
    view = [*msgspec.msgpack.decode(msgspec.msgpack.encode(View(1, "cc", [INFO]))), "new"]
    view[2] = [info]
    assert decode(msgspec.msgpack.encode([4, view])) == m.ViewDecided(View(1, "cc", [INFO]))


@pytest.mark.rule("wire/C-1")
def test_what_an_older_member_does_not_say_means_what_was_so_then() -> None:
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(INFO))[:-2]
    found = decode(msgspec.msgpack.encode([1, older, "dev", {}]))
    assert found == m.JoinRequest(INFO, "dev", {})
    assert isinstance(found, m.JoinRequest)
    assert (found.info.levels, found.info.version, found.level) == (FeatureLevels(1, 1), "", 1)


@pytest.mark.rule("wire/C-2")
@pytest.mark.parametrize("kind", [99, 127, 200])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_a_message_of_a_kind_that_only_newer_members_know_is_told_as_such(kind: int, count: int) -> None:
    with pytest.raises(UnknownMessage, match=f"kind {kind}"):
        decode(msgspec.msgpack.encode([kind, *["x"] * count]))


@pytest.mark.rule("wire/C-2")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x90",
        b"\x91",
        b"\xc0",
        b"\x93\x03",
        b"\x91\xcd\x01",
        b"\x91\xa1a",
        b"\xdc",
        b"\xdc\x00\x01",
        b"\xdd\x00",
    ],
)
def test_what_is_no_message_at_all_is_not_taken_for_a_newer_one(data: bytes) -> None:
    with pytest.raises(ProtocolError) as failed:
        decode(data)
    assert not isinstance(failed.value, UnknownMessage)


def test_levels_that_no_build_can_do_are_refused() -> None:
    for levels in (FeatureLevels(0, 1), FeatureLevels(3, 2)):
        info = msgspec.structs.replace(INFO, levels=levels)
        with pytest.raises(ProtocolError, match="levels that no build can do"):
            decode(encode(m.JoinRequest(info, "dev", {})))
    for message in (
        m.ViewDecided(View(1, "cc", [INFO], level=0)),
        m.LevelWanted(1, 0),
        m.JoinRequest(INFO, "dev", {}, level=0),
    ):
        with pytest.raises(ProtocolError, match="0 is no feature level"):
            decode(encode(message))


# -- files


def test_every_level_says_how_segments_are_written() -> None:
    assert SEGMENT_FORMATS.keys() == set(range(LOWEST, HIGHEST + 1))
    assert sorted(SEGMENT_FORMATS.values()) == list(SEGMENT_FORMATS.values()), "formats only go up"


@pytest.mark.parametrize("level", sorted(SEGMENT_FORMATS))
def test_a_header_tells_the_format_of_its_level(level: int) -> None:
    header = read_header(segment_header("store", 1, ORIGIN, 0, 5, level))
    assert header is not None
    assert header.format == SEGMENT_FORMATS[level]


def test_a_newer_segment_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = max(SEGMENT_FORMATS.values()) + 1
    monkeypatch.setitem(SEGMENT_FORMATS, HIGHEST + 1, newer)  # type: ignore[misc]
    data = segment_header("store", 1, ORIGIN, 0, 5, HIGHEST + 1)
    with pytest.raises(
        NewerFiles, match=f"a segment of format {newer}; this Holdfast reads formats 1, 2, 3, 4: start the"
    ):
        read_header(data)


def test_a_newer_checkpoint_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Snapshot(1, 0, [MapSnapshot("m", [(1, 0)], b"", [b"k"], [b"v"])])
    monkeypatch.setattr(checkpoint, "VERSION", 9)
    name, data = encode_checkpoint(taken, 5, "store")
    monkeypatch.undo()
    with pytest.raises(NewerFiles, match="of format version 9; this Holdfast reads versions 1 and 2"):
        read_checkpoint(name, data)


def test_a_view_of_the_first_level_is_written_as_before_there_were_levels() -> None:
    plain = View(1, "cc", [INFO])
    assert type(seen(plain).view) is PlainView
    high = msgspec.structs.replace(plain, level=2)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(seen(high)), type=Seen)
    assert again.view == high
    assert level_of([seen(high)]) == 2
    assert level_of([msgspec.msgpack.decode(msgspec.msgpack.encode(seen(plain)), type=Seen)]) == 1
    assert level_of([]) == 1
