"""What files say of the feature level that they were written at, and who may open them."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.engine.lives import SMALL, TERM, Life, content, reopened
from tests.engine.memory_disk import MemoryDisk, Platter

from holdfast.core.model.ids import MemberId
from holdfast.core.model.journal_entries import WrotePuts, seen
from holdfast.core.model.levels import FeatureLevels
from holdfast.core.model.records import pack_puts
from holdfast.core.model.views import MemberInfo, View
from holdfast.engine.journal import Journal
from holdfast.engine.ports import Put, Write
from holdfast.engine.restore import IDENTITY, IdentityFile
from holdfast.errors import ConfigError, NewerFiles
from holdfast.wire.journal_blocks import read_header, segments

INFO = MemberInfo(MemberId("aa"), 1, "h", 1, "h", 2, "one")


def view(level: int, number: int = 1) -> View:
    return View(number, "cc", [INFO], level=level)


def formats(platter: Platter) -> list[int]:
    """Of the segments, in their order."""
    headers = [read_header(bytes(platter.files[name])) for name in segments(list(platter.files))]
    return [header.format for header in headers if header is not None]


def identity(platter: Platter) -> IdentityFile:
    return msgspec.json.decode(bytes(platter.files[IDENTITY]), type=IdentityFile)


def raised() -> tuple[Platter, Life]:
    """A life in which the level has risen, and something of it was written."""
    platter = Platter()
    life = Life(platter).settle()
    life.begin(3)
    life.append(seen(view(1)))
    life.durably(life.put(3, "k", b"v"))
    life.append(seen(view(2, 2)), urgent=False)
    life.durably(life.append(WrotePuts(3, TERM, pack_puts("m", 1, [b"l"], [b"w"]))))
    return platter, life


@pytest.mark.rule("engine/W-9")
def test_with_the_view_that_raises_the_level_another_segment_begins() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(3)
    life.append(seen(view(1)))
    life.durably(life.put(3, "k", b"v"))
    assert (formats(platter), identity(platter).level) == ([1], 1)
    life.append(seen(view(2, 2)), urgent=False)
    life.durably(life.append(WrotePuts(3, TERM, pack_puts("m", 1, [b"l"], [b"w"]))))
    assert (formats(platter)[-1], identity(platter).level) == (2, 2)
    life.durably(life.append(WrotePuts(3, TERM, pack_puts("m", 2, [b"n"], [b"x"]))))
    assert formats(platter).count(2) == 1, "and only one"
    found = reopened(platter)
    assert content(found.copies[3])["m"][0] == {b"k": b"v", b"l": b"w", b"n": b"x"}  # type: ignore[index]


@pytest.mark.rule("engine/W-9")
def test_the_identity_file_says_so_first() -> None:
    """Whoever cannot do the level must see it before anything of it is there, whenever the power fails."""
    _, life = raised()
    deeds = life.disk.log
    said = next(
        at
        for at, deed in enumerate(deeds)
        if isinstance(deed, Put) and deed.make()[0] == IDENTITY and b'"level":2' in deed.make()[1]
    )
    first = next(at for at, deed in enumerate(deeds) if isinstance(deed, Write) and b"lw" in deed.data)
    assert said < first


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_on_the_way_leaves_files_that_say_what_they_hold(seed: int) -> None:
    draw = random.Random(seed)
    platter = Platter()
    life = Life(platter, draw=draw).settle()
    life.begin(3)
    life.append(seen(view(1)))
    life.durably(life.put(3, "k", b"v"))
    life.append(seen(view(2, 2)), urgent=False)
    life.append(WrotePuts(3, TERM, pack_puts("m", 1, [b"l"], [b"w"])))
    for _ in range(draw.randrange(12)):
        life.disk.step()
    platter.crash(draw)
    held = reopened(platter).copies[3]
    if b"l" in held.maps["m"].state.entries:
        assert identity(platter).level == 2
    assert max(formats(platter)) <= identity(platter).level


def test_the_level_of_files_never_falls() -> None:
    platter, life = raised()
    life.journal.close()
    again = Life(platter).settle()
    again.durably(again.append(seen(view(1, 3))))
    assert (formats(platter)[-1], identity(platter).level) == (2, 2)


# -- who may open them


def opened(platter: Platter, levels: FeatureLevels) -> Journal:
    return Journal.open(
        MemoryDisk(platter),
        SMALL,
        name="one",
        uuid="u",
        new_id=lambda: "store-1",
        now_ns=1000,
        wall_ms=0,
        levels=levels,
    )[0]


def test_who_cannot_do_the_level_is_refused_and_changes_nothing() -> None:
    platter, life = raised()
    life.journal.close()
    before = {name: bytes(data) for name, data in platter.files.items()}
    why = (
        "persistence.directory was written at feature level 2, and this Holdfast can do 1: start the version that "
        "wrote it, or one that can do this level; nothing was changed"
    )
    with pytest.raises(ConfigError, match=why):
        opened(platter, FeatureLevels(1, 1))
    assert before == {name: bytes(data) for name, data in platter.files.items()}
    found = reopened(platter)
    assert content(found.copies[3])["m"][0] == {b"k": b"v", b"l": b"w"}  # type: ignore[index]


def test_a_newer_build_reads_what_an_older_one_has_written() -> None:
    platter = Platter()
    life = Life(platter).settle()
    life.begin(3)
    life.append(seen(view(1)))
    life.durably(life.put(3, "k", b"v"))
    life.journal.close()
    assert formats(platter) == [1]
    assert opened(platter, FeatureLevels(1, 9)).identity.level == 1


@pytest.mark.parametrize("what", ["segment", "checkpoint"])
def test_a_file_of_a_newer_format_stops_the_start(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for a damaged one, without which the member would go on."""
    platter, life = raised()
    if what == "checkpoint":
        life.checkpoint(3)
        life.settle()
        monkeypatch.setattr("holdfast.wire.checkpoint.VERSION", 8)
        monkeypatch.setattr("holdfast.wire.checkpoint.WITH_SERVICES", 9)
    else:
        monkeypatch.setattr("holdfast.wire.journal_blocks.FORMATS", frozenset({1}))
    life.journal.close()
    before = {name: bytes(data) for name, data in platter.files.items()}
    with pytest.raises(NewerFiles, match="nothing was changed"):
        opened(platter, FeatureLevels(1, 2))
    assert before == {name: bytes(data) for name, data in platter.files.items()}


def test_an_identity_file_of_another_format_is_refused() -> None:
    platter, life = raised()
    life.journal.close()
    for files in (platter.files, platter.seen):
        files[IDENTITY] = files[IDENTITY].replace(b'"format":1', b'"format":7')
    with pytest.raises(ConfigError, match=r"is of format 7; this Holdfast knows format 1: start the version"):
        opened(platter, FeatureLevels(1, 2))
