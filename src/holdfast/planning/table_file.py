"""Input of `holdfast plan`: assignments as JSON. Errors say where the mistake is and what to write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, get_args

from holdfast.config.schema import Placement
from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.dryrun import SLOTS_MAX
from holdfast.core.placement.layout import Candidate
from holdfast.errors import ConfigError
from holdfast.planning.amounts import Sizes
from holdfast.planning.forecast import ask
from holdfast.planning.strategies import strategy_of
from holdfast.planning.walk import Question

BACKUPS_MAX = SLOTS_MAX - 1
WITH_TARGET = ("current", "target")
WITH_MEMBERS = ("current", "members", "backups", "groups", "leaving", "lite", "placement")
EXAMPLE = '{"current": [["A", "B", null]], "target": [["A", "C", "B"]]}'


@dataclass(frozen=True, slots=True)
class Tables:
    """A table from a file: with the rows to get to, or the members that lay it out."""

    current: list[ReplicaList]
    target: list[ReplicaList] | None = None
    members: list[str] = field(default_factory=list)
    backups: int = 0
    groups: dict[str, str] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    """Members that shall hold nothing: lite and leaving ones."""
    placement: Placement = "even"

    @property
    def gone(self) -> dict[str, int]:
        present = set(self.members)
        held = Counter(name for row in self.current for name in row if name is not None)
        return {} if self.target is not None else {name: held[name] for name in held if name not in present}

    @property
    def strategy(self) -> str:
        return strategy_of(self.placement)

    def question(self, scenarios: Sequence[str], sizes: Sizes | None = None, **more: Any) -> Question:
        """Raises ConfigError."""
        if self.target is not None:
            if list(scenarios) != ["now"]:
                raise ConfigError("--scenario and target are given: give the target, or members and backups")
            names = dict.fromkeys(name for row in [*self.current, *self.target] for name in row if name)
            table: dict[str, Any] = {
                "members": [Candidate(name) for name in names],
                "copies": len(self.target[0]),
                "target": tuple(self.target),
            }
        else:
            idle = set(self.idle)
            here = [Candidate(name, self.groups.get(name, "")) for name in self.members if name not in idle]
            table = {"members": here, "copies": self.backups + 1, "others": frozenset(idle)}
        # The table is laid out as a whole, however large it is.
        return ask(scenarios, rows=self.current, sizes=sizes, block=len(self.current), **table, **more)


def parse(data: bytes, origin: str) -> Tables:
    try:
        return _tables(_loaded(data))
    except ConfigError as wrong:
        raise ConfigError(f"{origin}: {wrong}") from None


def _loaded(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        raise ConfigError(f"byte {broken.start} is not UTF-8 text: save it as UTF-8") from None
    if not text.strip():
        raise ConfigError(f"it is empty: write JSON such as {EXAMPLE}")
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as broken:
        raise ConfigError(f"line {broken.lineno}, column {broken.colno} is not JSON: {broken.msg}") from None
    except ValueError:
        raise ConfigError("a number in it is too long") from None
    except RecursionError:
        raise ConfigError(f"it is nested too deeply: write JSON such as {EXAMPLE}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"it holds {_kind(found)}, not an object: write JSON such as {EXAMPLE}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the key {twice!r} is there twice: leave one out")
    return found


def _tables(given: dict[str, Any]) -> Tables:
    known = WITH_TARGET if "target" in given else WITH_MEMBERS
    for name in given:
        if "target" in given and name in WITH_MEMBERS and name not in WITH_TARGET:
            raise ConfigError(
                f"both target and {name} are given: give the target, or let it be computed from members and backups"
            )
        if name not in known:
            near = get_close_matches(name, {*WITH_TARGET, *WITH_MEMBERS}, 1)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else f"the keys are {', '.join(WITH_TARGET + WITH_MEMBERS[1:])}"
            )
            raise ConfigError(f"the key {name!r} is unknown: {hint}")
    if "current" not in given:
        raise ConfigError("current is missing: give the rows of the present table, one for each partition")
    current = _rows(given["current"], "current")
    if "target" in given:
        target = _rows(given["target"], "target")
        if len(target) != len(current):
            raise ConfigError(
                f"target has {len(target)} rows, but current has {len(current)}: give one for each partition"
            )
        return Tables(current, target)
    if missing := [name for name in ("members", "backups") if name not in given]:
        raise ConfigError(
            f"{missing[0]} is missing: give the target, or members and backups from which it is computed"
        )
    return _with_members(given, current)


def _with_members(given: dict[str, Any], current: list[ReplicaList]) -> Tables:
    members = _names(given["members"], "members")
    if not members:
        raise ConfigError("members is empty: name the present members")
    backups = given["backups"]
    if isinstance(backups, bool) or not isinstance(backups, int) or not 0 <= backups <= BACKUPS_MAX:
        raise ConfigError(f"backups is {_shown(backups)}: give a number from 0 to {BACKUPS_MAX}")
    idle = [*_names(given.get("leaving", []), "leaving"), *_names(given.get("lite", []), "lite")]
    groups = given.get("groups", {})
    if not isinstance(groups, dict):
        raise ConfigError(
            f'groups is {_kind(groups)}: give an object of member and group, {{"A": "rack 1", "B": "rack 2"}}'
        )
    for name, group in groups.items():
        if not _is_name(group):
            raise ConfigError(
                f"groups gives {name!r} the group {_shown(group)}: a group is a text of one line"
            )
    known = set(members)
    for key, names in (("groups", list(groups)), ("leaving and lite", idle)):
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"{key} names {name!r}, which is not in members: add it there, or leave it out"
                )
    if known.issubset(idle):
        raise ConfigError("every member is leaving or lite: no member is left to hold the partitions")
    placement = given.get("placement", "even")
    if placement not in get_args(Placement):
        raise ConfigError(f"placement is {_shown(placement)}: give {' or '.join(get_args(Placement))}")
    return Tables(current, None, members, backups, groups, idle, placement)


def _rows(given: Any, key: str) -> list[ReplicaList]:
    if not isinstance(given, list):
        raise ConfigError(f"{key} is {_kind(given)}: give an array of rows, one for each partition")
    if not given:
        raise ConfigError(f"{key} is empty: give one row for each partition")
    rows = [_row(row, f"{key} row {number}") for number, row in enumerate(given)]
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ConfigError(
                f"{key} row {number} has {_slots(len(row))}, but row 0 has {_slots(len(rows[0]))}: "
                "fill the shorter rows up with null"
            )
    return rows


def _row(given: Any, where: str) -> ReplicaList:
    if not isinstance(given, list):
        raise ConfigError(f"{where} is {_kind(given)}: a row is an array of member names and null")
    if not 1 <= len(given) <= SLOTS_MAX:
        raise ConfigError(f"{where} has {_slots(len(given))}: a partition has 1 to {SLOTS_MAX}")
    seen: dict[str, int] = {}
    for slot, name in enumerate(given):
        if name is None:
            continue
        if not _is_name(name):
            raise ConfigError(
                f"{where}, slot {slot} is {_shown(name)}: a member's name is a text of one line, an empty slot is null"
            )
        if name in seen:
            raise ConfigError(
                f"{where} names {name!r} twice, in slots {seen[name]} and {slot}: a member holds a partition once"
            )
        seen[name] = slot
    if where.startswith("target") and seen and given[0] is None:
        raise ConfigError(
            f"{where} has no owner: slot 0 is null, but slot {min(seen.values())} is not; put a member into slot 0"
        )
    return tuple(given)


def _names(given: Any, key: str) -> list[str]:
    if not isinstance(given, list):
        raise ConfigError(f"{key} is {_kind(given)}: give an array of member names")
    seen: set[str] = set()
    for number, name in enumerate(given):
        if not _is_name(name):
            raise ConfigError(
                f"{key}, entry {number} is {_shown(name)}: a member's name is a text of one line"
            )
        if name in seen:
            raise ConfigError(f"{key} names {name!r} twice: leave one out")
        seen.add(name)
    return given


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != "" and value.isprintable()


def _slots(count: int) -> str:
    return f"{count} slot{'s' * (count != 1)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _kind(value: Any) -> str:
    kinds: dict[type, str] = {
        dict: "an object",
        list: "an array",
        str: "a text",
        bool: "true or false",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")
