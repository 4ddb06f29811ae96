"""Interface of a replication engine, which decides when a request on a partition takes effect and replicates its
updates.

The engines are `primary_backup`, led by the primary that the table names, and `raft_partition`, led by the leader of a
Raft group. Three questions are separate:

- *What does the request answer and change?* The operation decides: a pure function of the object's state
  (`operations.map_operations`, or a hosted service).
- *When is that function called?* The engine decides. A primary calls it at once, because it alone orders the updates. A
  Raft group calls it when the command is committed and everything before it is applied: only then is the state the same
  on all replicas.
- *When is the caller answered?* The engine decides: when every sync backup holds the update, or when the leader has
  applied the entry. A read waits for the updates that its result depends on. Example: a `putIfAbsent` that finds a
  value is answered only when the backups hold that value; otherwise the primary could die, and the caller would have
  seen a value that never existed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import EntryEvent, Outcome, Request
from holdfast.core.model.processors import RunBegun

Decided = Callable[[Outcome | Wait | RunBegun], None]
ShareDone = Callable[[Outcome, Sequence[int], Sequence[int]], None]
"""Result of a share of an operation on all partitions: outcome, partitions that are not done yet, and partitions that
were not led here at the beginning.
"""


class ReplicationEngineDelegate(Protocol):
    """Interface of the router to an engine."""

    def rejection(self, request: Request) -> Outcome | None:
        """Asked before each slice of long work: the reason not to do it now."""

    def changed(self, partition: int) -> None:
        """Requests wait for that. Never called from within `submit`."""

    def collection_changed(self, partition: int, name: str, key: bytes) -> None:
        """The same for the items in this map, or the object with this key (routing/R-20)."""


class ReplicationEngine(Protocol):
    """Replication of the partitions that this member leads."""

    def serve(self, delegate: ReplicationEngineDelegate) -> None:
        """Call it once, before the first request."""

    @property
    def decides_later(self) -> bool:
        """Whether a request is decided after `submit` has returned, when others may be before it."""

    @property
    def crowded(self) -> bool:
        """Whether replicas lag so far behind that other members should send nothing more."""

    @property
    def refusing(self) -> bool:
        """Whether replicas lag so far behind that changes are rejected."""

    @property
    def running(self) -> int:
        """Operations on all partitions, in slices."""

    def leads(self, partition: int) -> bool:
        """Whether requests on this partition can be submitted now."""

    def joining(self, partition: int) -> MemberId | None:
        """The member that is being filled with the partition, in addition to its replicas."""

    def submit(self, request: Request, done: Decided, *, late: bool = False, behind: bool = False) -> None:
        """Handle a request on one partition that is led here. `done` is called once, perhaps before this
        returns; the request may also be rejected. A request that has to wait has changed nothing. Submit it
        again when the partition has changed (`changed`), or, with `late`, when it has waited long enough;
        then it is answered. `behind`: others have waited for the same since before it came (routing/R-20).

        With a `RunBegun` the entry is locked for an entry processor: submit the request again with its result, or call
        `end_run`.
        """

    def end_run(self, request: Request) -> None:
        """The run of this request has no result: unlock its entry. Does nothing if the lock has ended before."""

    def submit_whole(self, request: Request, done: ShareDone) -> int:
        """A share of an operation on all partitions. Returns about how many entries were examined."""

    def on_timer(self) -> None:
        """Continue work in slices."""

    def publish(self, event: EntryEvent) -> None:
        """Send an event about a whole map to its listeners."""
