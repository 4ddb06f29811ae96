"""What is a replication engine? It decides when a request on a partition takes effect, and replicates its updates.

There are two. `primary_backup` is led by the primary that the table names; `raft_partition` by the leader of a
Raft group. The router finds the member that leads a partition, and gives the request to that member's engine. Three
questions are kept apart:

- *What does the request answer and change?* The operation says that, a pure function of the object's state
  (`operations.map_operations`, or a hosted service).
- *When is that function called?* The engine says that. A primary calls it at once, for it orders the updates alone. A
  Raft group calls it when the command is committed and everything before it is applied: only then is the state the one
  that all replicas agree on.
- *When may the caller be answered?* The engine says that, too: when every sync backup holds the update, or when the
  leader has applied the entry. A read waits for what it rests on. Example: a `putIfAbsent` that finds a value answers
  nothing before the backups hold that value; if the primary died first, another would take office without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import EntryEvent, Outcome, Request

Decided = Callable[[Outcome | Wait], None]
"""What has come of a request: an outcome that the protocol stands for, or that it has to wait."""
ShareDone = Callable[[Outcome, Sequence[int], Sequence[int]], None]
"""What has become of a share of an operation on whole partitions: the outcome, the partitions in which it is not done
yet, and those that were not led here when it began."""


class ReplicationEngineDelegate(Protocol):
    """What a replication protocol asks of whom it serves: the router."""

    def rejection(self, request: Request) -> Outcome | None:
        """Asked before each slice of long work: why it must not be done just now."""

    def changed(self, partition: int) -> None:
        """The partition has changed, and requests wait for that. Never told from within `submit`."""


class ReplicationEngine(Protocol):
    """How the partitions that this member leads are replicated."""

    def serve(self, delegate: ReplicationEngineDelegate) -> None:
        """Requests come from here. To be said once, before the first."""

    @property
    def crowded(self) -> bool:
        """Whether so much waits for replicas that nothing more should be taken from other members."""

    @property
    def refusing(self) -> bool:
        """Whether so much waits for replicas that no change is taken."""

    @property
    def running(self) -> int:
        """How many operations on whole partitions are being worked off in slices."""

    def leads(self, partition: int) -> bool:
        """Whether requests on this partition can be given to it now."""

    def joining(self, partition: int) -> MemberId | None:
        """Who is about to hold the partition, besides the members of its row."""

    def submit(self, request: Request, done: Decided, *, late: bool = False) -> None:
        """A request on one partition that is led here. `done` is called once, perhaps before this returns. It may be
        refused, too.

        What has to wait has changed nothing. It is to be submitted again when the partition has changed (`changed`), or
        when it has waited as long as it may; then with `late`, and it is answered.
        """

    def submit_whole(self, request: Request, done: ShareDone) -> int:
        """A share of an operation on whole partitions. Answers at how many entries it has looked, at about."""

    def on_timer(self) -> None:
        """Go on with what is worked off in slices."""

    def tell(self, event: EntryEvent) -> None:
        """Let the listeners of a map hear of something that happened to all of it."""
