"""Changed settings of maps: the steps in which the number of copies changes, and what counts in each."""

from __future__ import annotations

import itertools

import pytest

from holdfast.config import MapSettings, Settings, load
from holdfast.core.effects import Note
from holdfast.core.membership.maps_in_force import MapsInForce
from holdfast.core.model.map_changes import (
    Copies,
    MapChange,
    MapChanges,
    MapOrder,
    maps_in_force,
    proven_maps,
    targets,
    without_changed,
)
from holdfast.core.outbox import Outbox

BASE = Settings(
    maps={"default": MapSettings(ttl_ms=7), "m": MapSettings(backups=1), "deep": MapSettings(backups=2)}
)
NONE = MapChanges()


def counts(maps: dict[str, MapSettings], name: str) -> tuple[int, int]:
    return maps[name].backups, maps[name].copies


@pytest.mark.rule("model/C-1")
def test_raising_counts_copies_only_when_they_were_proved_twice() -> None:
    first = NONE.ordered(BASE, "m", {"backups": 3})
    second, third = first.advanced(), first.advanced().advanced()
    steps = [
        (counts(maps_in_force(BASE, one), "m"), counts(proven_maps(BASE, one), "m"))
        for one in (first, second)
    ]
    assert steps == [((1, 4), (1, 2)), ((3, 4), (1, 2))], "filled, then waited for, and not relied upon"
    assert counts(maps_in_force(BASE, third), "m") == counts(proven_maps(BASE, third), "m") == (3, 4)
    assert [one.done for one in (first, second, third)] == [False, False, True]


@pytest.mark.rule("model/C-1")
def test_lowering_relies_on_fewer_at_once_and_drops_copies_last() -> None:
    first = NONE.ordered(BASE, "deep", {"backups": 0})
    assert counts(maps_in_force(BASE, first), "deep") == (0, 3), "still held"
    assert counts(proven_maps(BASE, first), "deep") == (0, 1)
    assert counts(maps_in_force(BASE, first.advanced()), "deep") == (0, 1)


@pytest.mark.rule("model/C-2")
def test_a_reset_lifetime_is_forgotten_at_once() -> None:
    changed = NONE.ordered(BASE, "m", {"ttl_ms": 9})
    assert MapOrder("m", resets=True).applied(BASE, changed).changes == ()
    assert MapOrder("n", resets=True).applied(BASE, changed) == changed


@pytest.mark.rule("model/C-2")
def test_reset_copies_are_proved_before_the_map_is_forgotten() -> None:
    """Otherwise failover would rely at once on copies that hold nothing of the map."""
    changed = NONE.ordered(BASE, "deep", {"backups": 0, "ttl_ms": 9}).advanced()
    assert changed.done
    steps = [MapOrder("deep", resets=True).applied(BASE, changed)]
    while steps[-1].changes:
        assert MapOrder("deep", resets=True).is_in(steps[-1])
        assert maps_in_force(BASE, steps[-1])["deep"].ttl_ms == BASE.map("deep").ttl_ms
        steps.append(steps[-1].advanced().settled(BASE))
    force = [
        (counts(maps_in_force(BASE, one), "deep"), counts(proven_maps(BASE, one), "deep")) for one in steps
    ]
    assert force == [((0, 3), (0, 1)), ((2, 3), (0, 1)), ((2, 3), (2, 3))]


@pytest.mark.rule("model/C-2")
def test_a_reset_map_follows_a_default_that_changes_meanwhile() -> None:
    changed = NONE.ordered(BASE, "m", {"backups": 0}).advanced()
    changed = MapOrder("m", resets=True).applied(BASE, changed)
    changed = MapOrder("default", {"backups": 2}).applied(BASE, changed)
    for _ in range(6):
        changed = changed.advanced().settled(BASE)
    assert [change.name for change in changed.changes] == ["default"]
    assert counts(maps_in_force(BASE, changed), "default") == (2, 3)


@pytest.mark.rule("model/C-2")
def test_a_map_in_a_zone_stays_there_when_it_is_reset() -> None:
    moved = MapChanges(3, (MapChange("m", {"ttl_ms": 9}, zone="z"),))
    assert MapOrder("m", resets=True).applied(BASE, moved).changes == (MapChange("m", {}, zone="z"),)


@pytest.mark.rule("model/C-1")
@pytest.mark.parametrize("orders", list(itertools.product(range(3), range(2), repeat=2)))
def test_nothing_relies_on_more_than_the_step_before_has_proved(orders: tuple[int, ...]) -> None:
    """Whatever is ordered when, in whichever step: failover relies on backups that writes wait for, which are held."""
    for between in range(3):
        changes = NONE.ordered(BASE, "m", {"backups": orders[0], "async_backups": orders[1]})
        held = Copies(1, 2, 1, 2)
        for number in range(8):
            if number == between:
                changes = changes.ordered(BASE, "m", {"backups": orders[2], "async_backups": orders[3]})
            copies = changes.copies_of(BASE, "m")
            assert copies.backups <= copies.waits < copies.holds
            assert copies.backups < copies.copies <= copies.holds
            assert copies.backups <= max(held.waits, 0), (
                "failover relies on what was waited for in the step before"
            )
            assert copies.waits <= held.holds - 1, "writes wait for what was filled in the step before"
            held = copies
            changes = changes.advanced()
        assert changes.done
        assert counts(targets(BASE, changes).maps, "m") == (orders[2], 1 + orders[2] + orders[3])


def test_a_lifetime_changes_at_once() -> None:
    changed = NONE.ordered(BASE, "m", {"ttl_ms": 5})
    assert changed.done
    assert maps_in_force(BASE, changed)["m"] == MapSettings(backups=1, ttl_ms=5)
    assert changed.version == 1


def test_a_map_without_a_table_follows_default_until_it_has_its_own_value() -> None:
    changed = NONE.ordered(BASE, "default", {"ttl_ms": 9, "backups": 0}).ordered(
        BASE, "other", {"max_idle_ms": 4}
    )
    found = maps_in_force(BASE, changed)
    assert found["other"] == MapSettings(ttl_ms=9, max_idle_ms=4, backups=0, async_backups=1), "still held"
    assert found["m"].ttl_ms == 0, "a map with a table of its own keeps it"
    own = changed.ordered(BASE, "other", {"backups": 2}).ordered(BASE, "default", {"backups": 1})
    assert own.find("other") == MapChange(
        "other", {"max_idle_ms": 4, "backups": 2, "async_backups": 0}, Copies(0, 1, 0, 3)
    )


# -- settings that members compare when one joins


def shared(text: str) -> dict[str, str]:
    return load(text).shared()


def test_a_changed_setting_is_not_compared() -> None:
    changed = NONE.ordered(BASE, "m", {"backups": 2})
    old, new = shared("[maps.m]\nbackups = 1"), shared("[maps.m]\nbackups = 2")
    assert old != new
    assert without_changed(old, changed) == without_changed(new, changed)
    other = shared("[maps.m]\nbackups = 2\nttl_ms = 5")
    assert without_changed(other, changed) != without_changed(old, changed)


def test_a_file_may_lack_the_table_of_a_changed_map() -> None:
    changed = NONE.ordered(BASE, "m", {"ttl_ms": 9})
    with_table, without = shared("[maps.m]\nttl_ms = 9"), shared("")
    assert without_changed(with_table, changed) == without_changed(without, changed)
    default = changed.ordered(BASE, "default", {"max_idle_ms": 3})
    assert without_changed(with_table, default) != without_changed(without, default), (
        "the one has max_idle_ms of its table, the other that of default"
    )


# -- what a member shows


def test_each_setting_is_listed_with_its_source() -> None:
    configured = load("[maps.default]\nttl_ms = 3\n[maps.m]\nbackups = 2")
    maps = MapsInForce(configured)
    maps.change(NONE.ordered(configured, "other", {"backups": 2}), Outbox(), first=True)
    found = {(row.map, row.setting): (row.value, row.source, row.complete) for row in maps.listed()}
    assert found["default", "ttl_ms"] == (3, "configuration", True)
    assert found["m", "ttl_ms"] == (3, "default", True)
    assert found["m", "backups"] == (2, "configuration", True)
    assert found["m", "reads"] == ("primary", "built-in", True)
    assert found["other", "backups"] == (2, "map set", False)
    assert found["other", "ttl_ms"] == (3, "default", True)


def test_a_member_whose_configuration_contradicts_warns_when_it_joins() -> None:
    configured = load("[maps.m]\nbackups = 1\nttl_ms = 4")
    out = Outbox()
    maps = MapsInForce(configured)
    maps.change(NONE.ordered(configured, "m", {"backups": 2}), out, first=True)
    notes = [(effect.level, effect.fields["key"]) for effect in out.take() if isinstance(effect, Note)]
    assert notes == [("warning", "maps.m.backups")], "async_backups are not in the file"
    assert maps.settings.map("m").copies == 3
    assert maps.proven.map("m").copies == 2
    assert configured.map("m").copies == 2, "the configuration stays as it is"
