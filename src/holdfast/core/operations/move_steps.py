"""Steps of the move of a map in one partition: their answers and updates. Pure: the copy is read and not changed.

Both engines decide them alike, as all updates of a step are one batch.

- operations/V-1: A pause holds until the source is resumed in a later phase, also under later leaders.
- operations/V-2: The target applies the fills of the newest attempt, each once and in order. A fill of a former leader
  of the source, however late, changes nothing.
- operations/V-4: A switch is written with the last fill, and names the last update of the target after it: a copy with
  the mark `FILLED` has the switch. It is forgotten with the map's entries. The map exists then, even if it is empty, so
  that its next updates have higher numbers under each later leader.
- operations/V-3: No map is paused while a transaction has locked one of its entries: a prepared branch will be applied.
- operations/V-5: A transaction writes an entry only where its map lives. Example: a transaction has read x, and holds
  no lock. The map moves into a zone, and the source forgets the move. If the source then took the prepare, which was
  sent to the place of the read, it would write x where no reader finds it.

Example for operations/V-2: leader 1 of the source sends fill 5 of attempt 1 and hangs. Leader 2 begins attempt 2, which
empties the target, and completes it. When fill 5 arrives, attempt 2 is known, and its old values are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from holdfast.config import MOVES_MAP, REQUESTS_MAP, SWITCHES_MAP
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.map_moves import (
    COUNTERS,
    REQUESTS_KEPT_MS,
    AskFill,
    EndMove,
    FillMap,
    MarkKind,
    MoveAnswer,
    MoveMark,
    MovesInForce,
    MoveStep,
    PauseMap,
    ResumeMap,
    StreamSwitch,
    encode_move,
)
from holdfast.core.model.records import Change
from holdfast.core.model.transactions import LockKeys, PrepareBranch, TransactionStep
from holdfast.core.store.move_marks import is_closed, mark_in
from holdfast.core.store.replica import MapReplica

LOCKED = "a transaction has locked an entry"
SUPERSEDED = "a newer attempt fills it"
NOT_FORGOTTEN = "the map has lived here before, and is not forgotten yet"


def decide_move(
    maps: Mapping[str, MapReplica],
    name: str,
    step: MoveStep,
    wall_ms: int,
    opened_at: int = 0,
    *,
    locked: bool = False,
) -> Decision:
    """Decide a step about map `name` in a copy with these maps. `wall_ms`: the calendar. `opened_at`: the counter of
    the map if this step opens it, before its first update. `locked`: a transaction has locked an entry of the map here.
    """
    mark = mark_in(maps, name)
    if mark is not None and mark.number > step.number:
        return _refused(mark, "a later move is under way")
    if isinstance(step, AskFill):
        return _answer(mark)
    if isinstance(step, EndMove):
        return _end(maps, name, mark, step)
    if isinstance(step, FillMap):
        return _fill(maps, name, mark, step, wall_ms, opened_at)
    if isinstance(step, PauseMap):
        if locked:
            return _refused(mark, LOCKED)
        return _set(name, MoveMark(step.number, MarkKind.PAUSED, _round(mark, step)))
    assert isinstance(step, ResumeMap), step
    if mark is None or mark.kind is not MarkKind.PAUSED or mark.round > step.round:
        return _answer(mark)
    return Decision(encode_move(MoveAnswer()), [_removal(name)])


class EngineHere(Protocol):
    def houses(self, name: str) -> bool:
        """Whether the map lives in this engine, by the settings in force."""


def moving_reason(
    maps: Mapping[str, MapReplica],
    moves: MovesInForce,
    step: TransactionStep,
    engine: EngineHere | None = None,
) -> str:
    """Why a step of a transaction is rejected: a map that it names is being moved, or was; empty: it is not.
    Transactions with locks from before may end (operations/V-3). `engine`: None: it was asked when the step was
    logged (operations/V-5).
    """
    if isinstance(step, LockKeys):
        names, holds = {name for name, _ in step.keys}, step.confirm
    elif isinstance(step, PrepareBranch):
        names, holds = {name for name, _ in step.touched}, step.locked
    else:
        return ""
    for name in sorted(names):
        if is_closed(maps, name) or (moves.is_leaving(name) and not holds):
            return f"the map {name!r} is being moved: roll the transaction back"
        if engine is not None and not engine.houses(name):
            return f"the map {name!r} was moved to another engine: try the transaction again"
    return ""


def _round(mark: MoveMark | None, step: PauseMap) -> int:
    present = mark is not None and mark.number == step.number and mark.kind is MarkKind.PAUSED
    return max(mark.round, step.round) if mark is not None and present else step.round


def _fill(
    maps: Mapping[str, MapReplica],
    name: str,
    mark: MoveMark | None,
    step: FillMap,
    wall_ms: int,
    opened_at: int,
) -> Decision:
    known = mark if mark is not None and mark.number == step.number else None
    if known is not None and known.kind is MarkKind.PAUSED:
        return _refused(mark, "this is the source")
    attempt, applied = (known.attempt, known.applied) if known is not None else (0, 0)
    if step.attempt < attempt:
        return _refused(mark, SUPERSEDED)
    kind = MarkKind.FILLED if step.round else MarkKind.FILLING
    new = MoveMark(step.number, kind, step.round, step.attempt, step.place + 1)
    updates = [_marking(name, new)]
    if step.attempt > attempt:
        if step.place:
            return _refused(mark, "its first fill has not come")
        if known is None and _is_left_over(maps.get(name), step):
            return Decision(encode_move(MoveAnswer(mark, NOT_FORGOTTEN)), _emptying(maps, name))
        updates += _emptying(maps, name)
    elif step.place < applied:
        return _answer(mark)
    elif step.place > applied:
        return _refused(mark, "a fill before it is missing")
    updates += _entries(maps, name, step, wall_ms)
    if step.switch is not None:
        updates += _switching(maps, name, step.switch, updates, opened_at)
    if step.requests:
        # model/M-5
        updates.append(Update(Change.SET, name.encode(), step.requests, REQUESTS_KEPT_MS, map=REQUESTS_MAP))
    return Decision(encode_move(MoveAnswer(new)), updates)


def _is_left_over(held: MapReplica | None, step: FillMap) -> bool:
    """Whether a copy from before, with a change stream, would number its updates below those of the source (model/M-3).
    Its leader forgets it in a moment.
    """
    return held is not None and held.changes > 0 and 0 < held.updates.hwm < step.above - COUNTERS


def _switching(
    maps: Mapping[str, MapReplica],
    name: str,
    switch: StreamSwitch,
    updates: list[Update],
    opened_at: int,
) -> list[Update]:
    """operations/V-4."""
    held = maps.get(name)
    own = sum(1 for update in updates if update.map == name)
    opening = [Update(Change.CLEAR, map=name)] if held is None and not own else []
    before = held.updates.hwm if held is not None else opened_at
    kept = encode_move(replace(switch, start=before + own + len(opening)))
    return [*opening, Update(Change.SET, name.encode(), kept, map=SWITCHES_MAP)]


def _entries(maps: Mapping[str, MapReplica], name: str, step: FillMap, wall_ms: int) -> list[Update]:
    passed_ms = max(0, wall_ms - step.time_ms)
    zeros = [0] * len(step.keys)
    held = maps.get(name)
    rows = zip(
        step.keys,
        step.values,
        step.ttls_ms or zeros,
        step.max_idles_ms or zeros,
        step.key_hashes or zeros,
        strict=True,
    )
    updates: list[Update] = []
    for key, value, ttl_ms, max_idle_ms, key_hash in rows:
        if value is not None:
            left_ms = max(1, ttl_ms - passed_ms) if ttl_ms else 0
            updates.append(Update(Change.SET, key, value, left_ms, max_idle_ms, key_hash, map=name))
        elif step.place and held is not None and key in held.state.entries:
            updates.append(Update(Change.REMOVE, key, map=name))
    return updates


def _end(maps: Mapping[str, MapReplica], name: str, mark: MoveMark | None, step: EndMove) -> Decision:
    if mark is None:
        return _answer(None)
    updates = [] if step.keep else _emptying(maps, name)
    if not step.keep:
        updates += [
            Update(Change.REMOVE, name.encode(), map=kept)
            for kept in (SWITCHES_MAP, REQUESTS_MAP)
            if kept in maps and name.encode() in maps[kept].state.entries
        ]
    return Decision(encode_move(MoveAnswer()), [*updates, _removal(name)])


def _emptying(maps: Mapping[str, MapReplica], name: str) -> list[Update]:
    held = maps.get(name)
    return [Update(Change.CLEAR, map=name)] if held is not None and held.state.entries else []


def _set(name: str, mark: MoveMark) -> Decision:
    return Decision(encode_move(MoveAnswer(mark)), [_marking(name, mark)])


def _marking(name: str, mark: MoveMark) -> Update:
    return Update(Change.SET, name.encode(), encode_move(mark), map=MOVES_MAP)


def _removal(name: str) -> Update:
    return Update(Change.REMOVE, name.encode(), map=MOVES_MAP)


def _answer(mark: MoveMark | None) -> Decision:
    return Decision(encode_move(MoveAnswer(mark)))


def _refused(mark: MoveMark | None, why: str) -> Decision:
    return Decision(encode_move(MoveAnswer(mark, why)))
