"""Entries in the log of a partition's group: requests or writes, with the leader's time.

**Transactions** (not built): maps of zones take no part, and `TransactionOperations.map_problem` refuses them for every
client before anything is carried out. A *branch*, the part of a transaction in one partition, will be three kinds of
`ZoneRequests` of this log, decided in its order by the state machine, so alike on all replicas:

- *Prepare* has the entries that the branch read and those that it writes. If the read ones are unchanged, and no other
  branch has prepared any of them, the writes are stored beside the map, as
  `core.operations.transaction_branches` does for the other engine, and the answer is yes. Otherwise it is no, and
  nothing is stored.
- *Commit* applies the stored writes as one command, and *roll back* drops them. Both are remembered by the id of the
  transaction, so a repeated one changes nothing (raft_partition/Z-3).
- A leader serves a key with a prepared write only after the decision of its transaction is in the log. The
  coordinator's decision is in a log as well: that of the group of its first partition. So the next leader, or an
  orphaned branch, can ask for it, and no lock depends on the memory of a member.

A state sent to another replica (`partition_snapshot`) has the prepared branches, as it has the ids of requests. Builds
that do not know these requests could not apply them, so they need a feature level.
"""

from __future__ import annotations

import msgspec

from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites


class ZoneMark(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Changes nothing. Only in logs of older builds, which compared replicas at such a place."""


class ZoneCommand(msgspec.Struct, frozen=True, array_like=True):
    time_ms: int
    """Clock of the leader that accepted it: milliseconds since 1970."""
    parts: tuple[ZoneRequests | ZoneWrites | ZoneMark, ...] = ()
    sweep: bool = False
    counted: bool = False
    """Updates have terms, from this command on (raft_partition/Z-6): all members know that."""


encode_command = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(ZoneCommand).decode
