"""Coverage of a campaign: each feature, fault, answer and rule has a mark; one that a long campaign never
hits is a gap.

Declare the mark of a new part of the simulator here, and hit it where it happens: `world.marks.hit("lite
members")`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from holdfast.core.model.operations import Status
from holdfast_lab.sim.ablations.rules import DURABLE, RULES, TRANSACTIONAL, ZONED

MARK = "mark_"
RULE = "rule "
ANSWER = "answer "
FAULT = "fault "
PHASE = "phase "
DAMAGE = "damage "

FEATURES: dict[str, str] = {
    "one member": "a cluster of one",
    "nine members or more": "up to 15 from the beginning",
    "one partition": "everything in one",
    "a hundred partitions or more": "up to 271",
    "thousands of keys": "clients write to 2,000",
    "values of a megabyte": "a few of them",
    "real chunk size": "partitions move in chunks as large as in production",
    "lite members": "members that hold no data",
    "groups of hosts": "zones, racks or hosts: no two copies share one",
    "service": "a service beside the maps",
    "quorum any": "no majority is asked for",
    "losses accepted": "partitions.lost is accept",
    "placed by rendezvous": "partitions.placement is rendezvous",
    "acknowledgements collected by clients": "replication.backup_acks is client",
    "confirmed reads": "a map with reads = confirmed",
    "reads from backups": "a map with read_backups",
    "async backups": "a map with async backups",
    "maps of several depths": "maps with different backup counts",
    "change streams": "a map with changes_bytes",
    "unknown is told at once": "replication.unknown_writes is fail",
    "tiny backlog": "records for backups fill what may be kept of them",
    "tiny room for waiting requests": "few requests may wait for other members",
    "small values only": "longer ones are refused",
    "memories run short": "members have little or no room now and again",
    "states and wishes": "the operator changes the state of the cluster, and what members want to be",
    "clocks that err": "clocks drift, stand still and jump; calendars are set",
    "two builds": "members of two feature levels are mixed, and replaced by each other",
    "damaged backups": "copies of backups are damaged on purpose",
    "more losses than backups": "more members die than is promised to be survived",
    "read buffers": "packets of a member may be read together",
    "journal sync": "every write is durable before it is acknowledged",
    "journal lazy": "writes are durable later",
}
BUFFERS: dict[str, str] = {
    "packets read together": "several packets of one read buffer share the end of a step",
}
FORWARDING: dict[str, str] = {
    "forwarded frames": "a member forwards requests as clients sent them",
    "frames skipped": "the owner leaves some of them to the member that has forwarded them",
    "frames in doubt": "the owner leaves before it answers them",
}
BUILDS: dict[str, str] = {
    "level raised": "the operator has raised the feature level, after all could do it",
}
ZONES: dict[str, str] = {
    "zone of one replica": "a partition's group has a single replica",
    "zone of several replicas": "a group goes on while most of its voters do",
    "zone of fewer partitions": "a group serves several client partitions",
    "metastore of one": "one voter",
    "metastore of several": "three voters or five",
    "metastore: started by an order": "in a running cluster",
    "metastore: other voters": "the operator orders another number of them",
    "zone: replace": "a running change gets another target",
    "zone: cancel": "a running change is given up for another one",
    "zone: rendezvous": "each partition goes where it ranks the members first",
    "zone: even": "loads differ by one at the most",
    "zone altered": "while it is used",
    "zone: listener": "events of a Raft map are judged",
    "zone: another leader": "a group has another leader than before",
    "zone: joint": "the voters before and those that are wanted decide together",
    "zone: state sent": "a replica is so far behind that it gets the state itself",
    "zone: scan": "a client reads several keys of a map in a zone in a scan",
    "zone: bulk write": "a client writes several entries of a map in a zone in columns",
    "zone: maximum idle time": "a client uses an entry of a map in a zone that has a maximum idle time",
    "zone: cut read": "a cut of a Raft map is read and judged",
    "zone: reset": "groups have lost their majority, and the operator lets the rest continue",
    "zone: short logs": "groups keep few entries, so replicas that lack some get the state",
    "zone: change stream": "a map in a zone has a change stream",
    "zone: changes from a follower": "a replica that does not lead reports changes to a reader",
    "zone: stream begins again": "no member has the changes any more, and the reader needs a snapshot",
    "zone: stream goes over a move": "a reader has read all changes of the former place, and goes on at the new one",
    "zone: changes from before a move": "a reader that is behind gets changes of the former place",
    "map move ordered": "an operator moves the map out of its zone, or into it",
    "map move: copying": "its entries are copied while it is used",
    "map move: switching": "it is paused",
    "map move: moved": "it is served at the new place",
    "map move: cleaning": "the old place forgets it",
    "map move: cancelling": "the operator has cancelled it",
}
RESTARTS: dict[str, str] = {
    "time to live over a restart": "an entry view is read when the member that took the write has died",
    "zone: log over a restart": "what a node had acknowledged of a group is compared with its files",
}
TRANSACTIONS: dict[str, str] = {
    "transaction committed": "and its application got the outcome",
    "transaction rolled back": "by a deadlock, a timeout, a conflict, or since a member had gone",
    "transaction reads together": "its application requested all entries at once",
    "transaction in doubt": "its application got an unknown outcome",
    "transaction left alone": "its application went away",
}
NETWORK_FAULTS = (
    "crash",
    "crash-midstep",
    "crash-torn",
    "crash-cut",
    "replace",
    "group",
    "isolate",
    "halves",
    "one-way",
    "bridge",
    "pause",
    "drain",
    "join",
    "lossy",
    "slow",
    "echo",
    "coup",
    "starve",
    "ambush-crash",
    "ambush-part",
    "ambush-cut-off",
    "ambush-cut-around",
    "state",
    "wish",
    "suspend",
    "clock-jump",
    "calendar",
    "memory",
    "build",
)
DISKS = (
    "power-cut-one",
    "power-cut-all",
    "kill-all",
    "fsync-error",
    "disk-full",
    "slow-disk",
    "rot",
    "wiped-disk",
)
FAULTS: dict[str, str] = {FAULT + kind: "as the story tells it" for kind in NETWORK_FAULTS}
DISK_FAULTS: dict[str, str] = {FAULT + kind: "the same, of runs with files" for kind in DISKS}
ANSWERS: dict[str, str] = {ANSWER + status.name: "as a client heard it" for status in Status}
PHASES: dict[str, str] = {
    PHASE + "core alone": "a sufficient part of the hosts is well and converges, the rest stays broken",
    PHASE + "loss: accept": "all copies of partitions are lost, and the settings accept it",
    PHASE + "loss: operator": "the same, and the operator accepts it",
    PHASE + "loss: return": "the same, until those who held them are back with their disks",
    DAMAGE + "value": "a backup holds another value, and is mended",
    DAMAGE + "entry lost": "an entry is missing there",
    DAMAGE + "entry added": "there is one too many",
    DAMAGE + "rot": "memory has changed unnoticed",
    DAMAGE + "behind": "it has missed the last updates",
    DAMAGE + "ahead": "it counts updates that there never were",
}
RULES_ASKED: dict[str, str] = {RULE + name: meaning for name, meaning in RULES.items()}
MARKS: dict[str, str] = (
    FEATURES
    | BUFFERS
    | FORWARDING
    | BUILDS
    | ZONES
    | RESTARTS
    | TRANSACTIONS
    | FAULTS
    | DISK_FAULTS
    | ANSWERS
    | PHASES
    | RULES_ASKED
)

LOSSES_IGNORED = (
    "the maps of a campaign ignore losses; tests/lab/sim/test_loss_policies.py has some that do not"
)
NO_BASELINE = "no cluster of a campaign has a baseline; tests/lab/sim/test_baseline.py has some"
NEVER: dict[str, str] = {
    ANSWER + "FAILED": "an error inside a member ends the run as a failure before any client gets it",
    ANSWER + "LOST": LOSSES_IGNORED,
    RULE + "lost-refused": LOSSES_IGNORED,
    RULE + "lost-stays": LOSSES_IGNORED,
    RULE + "baseline-history": NO_BASELINE,
    RULE + "baseline-outside": NO_BASELINE,
}
NEED_DISKS = frozenset(
    {
        *DISK_FAULTS,
        *RESTARTS,
        PHASE + "loss: return",
        "journal sync",
        "journal lazy",
        *(RULE + name for name in DURABLE),
    }
    | {ANSWER + "NO_ROOM", RULE + "fill-durable", RULE + "failed-sync-stops", RULE + "damage-ends"}
)


class Marks(Counter[str]):
    def hit(self, name: str, times: int = 1) -> None:
        """Raises KeyError if the mark is not declared."""
        if name not in MARKS:
            raise KeyError(f"no such mark: {name!r}; declare it in holdfast_lab.sim.marks")
        self[name] += times

    def figures(self) -> dict[str, int]:
        return {MARK + name: self[name] for name in MARKS if self[name]}


def missing(
    figures: Mapping[str, int | float],
    *,
    disks: bool,
    cuts_only: bool = False,
    zones: bool = False,
    transactions: bool = False,
) -> list[str]:
    """Marks without a hit that could have one. `disks`: some runs had files; `cuts_only`: all runs were about
    power cuts, with synchronous journals only; `zones`: a map was in a zone; `transactions`: applications ran
    some.
    """
    excused: Iterable[str] = {*NEVER, *(ZONES_HAVE_NOT if zones else ONLY_ZONES_HAVE)}
    if not transactions:
        excused = {*excused, *TRANSACTIONS, *(RULE + name for name in TRANSACTIONAL)}
    if not disks:
        excused = {*excused, *NEED_DISKS}
    if cuts_only:
        excused = {*excused, *CUTS_HAVE_NOT}
    return [name for name in MARKS if name not in excused and not figures.get(MARK + name)]


CUTS_HAVE_NOT = frozenset(
    {
        "quorum any",
        "more losses than backups",
        "journal lazy",
        "service",
        "zone: reset",
        *(name for name in PHASES if name.startswith(PHASE + "loss")),
    }
)
ONLY_ZONES_HAVE = frozenset({*ZONES, "zone: log over a restart", *(RULE + name for name in ZONED)})
ZONES_HAVE_NOT = frozenset(
    {
        "a hundred partitions or more",
        "more losses than backups",
        FAULT + "rot",
        RULE + "reset-fences",
        *(name for name in PHASES if name.startswith(PHASE + "loss")),
    }
)
"""Members that lost a majority have no files, so none of an older generation of a group returns."""
