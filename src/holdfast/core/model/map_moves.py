"""Moves of maps between replication engines while they are used (`holdfast map move`).

A map lives in the partitions with a primary and backups, or in a zone. A move copies it, partition by partition, from
its *source* to its *target*, and then changes its home for all members at once. The phase of a move is part of the
view, so all members agree on it.

- model/M-1: `COPYING`: the source serves the map; the leader of each partition copies it to the target, and then what
  changes. `SWITCHING`: the leaders of the source *pause* it, so that nothing reads or changes it there, and send the
  rest. `MOVED`: the target serves it. `CLEANING`: every member knows that, so the source forgets it. `CANCELLING`: the
  source serves it, and the target forgets it.
- model/M-2: The *mark* of a partition, its state in a move, is an entry of the map `MOVES_MAP` in the same partition.
  So replicas, journals, snapshots and later leaders have it, like the locks of transactions.
- model/M-3: The update counters of the target begin far above those of the source. Otherwise the position of a change
  stream in the source could be taken for one in the target, because terms of both engines are small numbers, and the
  reader would miss changes.
- model/M-4: The last fill has the *switch* of the map's change stream: the last update of the paused source, and the
  history that leads to it. The target keeps it, with the number of its own last update by then, in the map
  `SWITCHES_MAP` of the partition. So a reader who has read the last update of the source continues after the fills,
  which repeat what it has read. Without a switch its position is rejected, and it begins again with a snapshot.
- model/M-5: The last fill has the ids of the requests that the paused source has applied, with their answers. The
  target keeps them for `REQUESTS_KEPT_MS` in the map `REQUESTS_MAP` of the partition. Example: a client puts a, the
  member that it asked ends before it answers, and the map moves. When the client repeats the put with the same id, the
  target must not apply it: others may have changed a meanwhile.

Example: `orders` moves into zone `z`. Partition 7 has the mark `FILLING` in its group of `z` while its entries arrive,
then the mark `PAUSED` in its copies with a primary, and `FILLED` in the group when the last changes have come.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Protocol

import msgspec

from holdfast.core.model.operations import Outcome, Status

CLOSED = Outcome(Status.MOVED, None, "the map is being moved, and is served elsewhere in a moment")
NOT_DUE = Outcome(Status.FAILED, None, "the move of the map is in another phase")


COUNTERS = 1 << 40
"""A source makes fewer updates than this during a move (model/M-3)."""
REQUESTS_KEPT_MS = 600_000
"""Clients repeat a request for at most their own timeout (model/M-5)."""
LINEAGE_MAX = 64
"""Most terms in a switch. Older positions are rejected."""


@unique
class MovePhase(IntEnum):
    """See model/M-1."""

    COPYING = 1
    SWITCHING = 2
    MOVED = 3
    CLEANING = 4
    CANCELLING = 5


class MapMove(msgspec.Struct, frozen=True, array_like=True):
    number: int
    """The version of the changes that began it."""
    source: str
    """A zone; empty: the partitions with a primary and backups."""
    target: str
    phase: MovePhase = MovePhase.COPYING
    round: int = 0
    """The switch begins again if the partitions are not paused and filled in time."""
    why: str = ""
    """Why it is cancelled; empty: an operator wants that."""

    @property
    def home(self) -> str:
        return self.target if self.phase in (MovePhase.MOVED, MovePhase.CLEANING) else self.source


@unique
class MarkKind(IntEnum):
    PAUSED = 1
    """The source: nothing reads or changes the map here."""
    FILLING = 2
    """The target: entries are missing."""
    FILLED = 3
    """The target: it has all that the paused source has."""


class MoveMark(msgspec.Struct, frozen=True, array_like=True):
    """The state of a partition in a move (model/M-2)."""

    number: int
    kind: MarkKind
    round: int = 0
    attempt: int = 0
    """In the target. Each leader of the source begins its own attempt, with nothing."""
    applied: int = 0
    """In the target: applied fills of this attempt."""


class StreamSwitch(msgspec.Struct, frozen=True, array_like=True):
    """Where the change stream of a moved map continues (model/M-4)."""

    end: int
    """Number of the last update of the source; 0: there was none."""
    lineage: list[tuple[int, int]]
    """Terms of the updates up to it, as in `Replica.lineage`. Term 0: there are no updates to read."""
    start: int = 0
    """Number of the last update of the target when it was filled, after which readers continue; set by the target."""


# -- steps: the values of `Op.MOVE` requests


class PauseMap(msgspec.Struct, frozen=True, array_like=True, tag=1):
    number: int
    round: int


class ResumeMap(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """To the source: remove the pause of this round, or of an earlier one."""

    number: int
    round: int


class FillMap(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """To the target: entries of the source, as they are now. The first fill of an attempt removes what is there."""

    number: int
    attempt: int
    place: int
    """Its place in the attempt, from 0. One that comes twice is applied once."""
    keys: list[bytes]
    values: list[bytes | None]
    """None: the entry was removed."""
    ttls_ms: list[int] = []
    """0: for ever. Empty: all 0."""
    max_idles_ms: list[int] = []
    key_hashes: list[int] = []
    round: int = 0
    """The last fill of a paused source; 0: more follow."""
    time_ms: int = 0
    """Calendar of the sender: the way here takes some of the times."""
    above: int = 0
    """The target numbers its updates above this (model/M-3)."""
    switch: StreamSwitch | None = None
    """In the last fill of a map with a change stream (model/M-4)."""
    requests: bytes = b""
    """In the last fill: requests that the source has applied (`store.request_ids.Remembered.encode`; model/M-5)."""
    forgets: bool = False
    """In the first fill: a zone forgets what is left over of the map from before (raft_partition/Z-11)."""


class AskFill(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """To the target: which mark is there?"""

    number: int


class EndMove(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """To both: forget the mark of this move or an earlier one, and, unless the map is to be kept, its entries."""

    number: int
    keep: bool


MoveStep = PauseMap | ResumeMap | FillMap | AskFill | EndMove


class MoveAnswer(msgspec.Struct, frozen=True, array_like=True):
    mark: MoveMark | None = None
    """After the step."""
    refused: str = ""
    """Why nothing was done; empty: it is done."""


_encoder = msgspec.msgpack.Encoder()
_steps: msgspec.msgpack.Decoder[MoveStep] = msgspec.msgpack.Decoder(MoveStep)
decode_mark = msgspec.msgpack.Decoder(MoveMark).decode
decode_switch = msgspec.msgpack.Decoder(StreamSwitch).decode
_answers = msgspec.msgpack.Decoder(MoveAnswer)


def encode_move(thing: MoveStep | MoveAnswer | MoveMark | StreamSwitch) -> bytes:
    return _encoder.encode(thing)


def decode_move_step(data: bytes) -> MoveStep:
    """Raises msgspec.MsgspecError."""
    return _steps.decode(data)


def decode_move_answer(data: bytes) -> MoveAnswer:
    """Raises msgspec.MsgspecError."""
    return _answers.decode(data)


class MovesInForce(Protocol):
    def home(self, name: str) -> str:
        """The zone of the map, or empty for the partitions with a primary."""

    def is_due(self, name: str, step: MoveStep) -> bool:
        """Whether a leader here may take this step now."""

    def is_leaving(self, name: str) -> bool:
        """Whether the map is about to be paused, so no transaction may lock any more of it (operations/V-3)."""


class NoMoves:
    def home(self, name: str) -> str:
        return ""

    def is_due(self, name: str, step: MoveStep) -> bool:
        return False

    def is_leaving(self, name: str) -> bool:
        return False


def is_due(move: MapMove | None, step: MoveStep) -> bool:
    """Whether a leader may take this step now. `move`: what its view has of the map.

    A pause or a fill may be late: the move may have ended meanwhile. The others undo something and are always allowed.
    """
    if isinstance(step, PauseMap):
        return (
            move is not None
            and move.number == step.number
            and (move.phase, move.round) == (MovePhase.SWITCHING, step.round)
        )
    if isinstance(step, FillMap):
        copies = (MovePhase.COPYING, MovePhase.SWITCHING)
        return move is not None and move.number == step.number and move.phase in copies
    return True


def step_problem(step: MoveStep) -> str:
    """Why the step is invalid; empty: it is valid."""
    if step.number <= 0:
        return "moves have numbers from 1 on"
    if isinstance(step, PauseMap | ResumeMap) and step.round <= 0:
        return "rounds of a switch are counted from 1"
    if not isinstance(step, FillMap):
        return ""
    if min(step.attempt - 1, step.place, step.round, step.time_ms, step.above) < 0:
        return "attempts are counted from 1, fills and rounds from 0"
    if step.switch is not None and (problem := _switch_problem(step.switch, step.round)):
        return problem
    sizes = [len(column) for column in (step.ttls_ms, step.max_idles_ms, step.key_hashes) if column]
    if any(size != len(step.keys) for size in (len(step.values), *sizes)):
        return "the columns of a fill have different lengths"
    if any(not 0 <= one <= 2**53 for one in (*step.ttls_ms, *step.max_idles_ms)):
        return "lifetimes of a fill are out of range"
    return "hash words are int32" if any(not -(2**31) <= one < 2**31 for one in step.key_hashes) else ""


def _switch_problem(switch: StreamSwitch, number: int) -> str:
    if not number or switch.start:
        return "only the last fill has a switch, which the target completes"
    if len(switch.lineage) > LINEAGE_MAX:
        return f"a switch has {LINEAGE_MAX} terms at most"
    starts = [start for _, start in switch.lineage]
    if min([switch.end, *starts, *(term for term, _ in switch.lineage)]) < 0 or starts != sorted(starts):
        return "terms of a switch follow each other"
    return ""
