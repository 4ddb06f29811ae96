"""What can go wrong, as one tree.

    HoldfastError
    ├── ConfigError              a setting is wrong; nothing was started
    │   └── NotInstalled         a package is needed that is not there; the message says which extra brings it
    ├── RequestError             one request failed
    │   ├── Refused              certainly not applied; safe to try again
    │   │   └── Moved, NotReady, Denied, TooLarge, Closing, Passive, NoRoom, NoMemory, NoDataMember,
    │   │       PartitionLost, Unsupported
    │   ├── Unknown              it may or may not have been applied
    │   └── Standing             an order that was taken, and is not carried out yet
    ├── CutLost                  what was to be read at a cut is kept by nobody any more
    ├── ChangesGone              changes that a reader has not seen yet are forgotten by everybody
    ├── ProtocolError            bytes from a peer or client that break the protocol
    ├── JournalBroken            the disk failed, or its files cannot be believed; the member stops
    └── InvariantBroken          a bug in Holdfast; the member stops
        └── CounterBroken        numbers of updates that cannot be

The three answers of a request (done, refused, unknown) are never mixed up: rule 11 of the design.
"""

from __future__ import annotations

from collections.abc import Sequence


class HoldfastError(Exception):
    """The root of every error that Holdfast raises on purpose."""


class ConfigError(HoldfastError):
    """A setting is wrong. The message names the key and the values it may take; nothing was started."""


class NotInstalled(ConfigError, ImportError):
    """A package is needed that is not there. The message says what for, and which extra brings it."""

    @classmethod
    def of(cls, what: str, package: str, extra: str) -> NotInstalled:
        """`what`: a sentence without its end, that says what the package is needed for."""
        return cls(f"{what}, and {package} is not installed: pip install '.[{extra}]' in the source folder")


class RequestError(HoldfastError):
    """One request failed."""


class Refused(RequestError):
    """The request was certainly not applied; it is safe to send it again."""


class Moved(Refused):
    """The partition lives elsewhere or is on its way; ask again with the newest partition table."""


class NotReady(Refused):
    """No member can serve this partition now (cluster forming, copies lost, or no majority)."""


class Denied(Refused):
    """The credentials are missing or wrong."""


class TooLarge(Refused):
    """A key, a value or a frame is larger than the configured limit."""


class Closing(Refused):
    """The member is shutting down and takes no more requests."""


class Passive(Refused):
    """The operator has made the cluster passive: entries can be read, not changed, until it is active again."""


class NoRoom(Refused):
    """A disk that would have to keep the write is full: entries can be read, not changed, until there is room again."""


class NoDataMember(Refused):
    """The cluster has lite members alone: nobody can hold an entry, until a data member joins."""


class NoMemory(Refused):
    """The memory of a member that would have to keep the write is nearly full (`limits.memory_bytes`): entries can be
    read and removed, not stored, until there is room again.
    """


class PartitionLost(Refused):
    """Partitions of the map are lost, and `maps.*.loss_policy` does not ignore that. The message names them. It lasts
    until the operator lets them be used again (`holdfast cluster reset-lost`).
    """


class Unsupported(Refused):
    """The operation exists in the protocol, but not in Holdfast; the message names it."""


class RolledBack(Refused):
    """A transaction was rolled back: nothing of it was done. It may be tried again."""


class Unknown(RequestError):
    """The request may or may not have been applied; read before you write again."""


class Standing(RequestError):
    """An order of the operator was taken and stands: it is not carried out yet, and will be when that is possible."""


class CutLost(HoldfastError):
    """Nobody keeps the cut any more: its lease has ended, or all who kept it are gone. Take a new one."""


class ChangesGone(HoldfastError):
    """Changes of a map that a reader has not seen yet cannot be told by anybody any more: its history is gone."""

    def __init__(self, map_name: str, partition: int, after: int, upto: int, why: str) -> None:
        """The updates after `after` up to `upto` of this map in this partition cannot be told; `why`, in words."""
        super().__init__(
            f"map {map_name!r}, partition {partition}: the changes after update {after} up to update {upto} are gone: "
            f"{why}"
        )
        self.map_name = map_name
        self.partition = partition
        self.after = after
        self.upto = upto
        self.why = why

    def __reduce__(self) -> tuple[type[HoldfastError], tuple[str, int, int, int, str]]:
        """So that it can travel from one process to another."""
        return ChangesGone, (self.map_name, self.partition, self.after, self.upto, self.why)


class ProtocolError(HoldfastError):
    """Bytes that break the protocol. The connection they came from is closed, and nothing else."""


class UnknownMessage(ProtocolError):
    """A message of a kind that this Holdfast does not know: it is from a newer one, or none."""


class InvariantBroken(HoldfastError):
    """A promise of the code to itself is broken: a bug in Holdfast. The member stops rather than guess."""


class CounterBroken(InvariantBroken):
    """An update counter was told what cannot be: a range that is known in part, or more gaps than there may be."""


class JournalBroken(HoldfastError):
    """The journal cannot be written (a failed write or fsync), or its files cannot be believed. The member stops."""


class NewerFiles(JournalBroken):
    """Files are sound, but of a format or a feature level that this Holdfast does not know. Nothing was changed."""


def raise_worst(told: Sequence[object]) -> None:
    """Of a change that was several requests, with what came of each: raises Refused if none was done, Unknown if some
    may have been and others were not.
    """
    failed = [result for result in told if isinstance(result, BaseException)]
    if not failed:
        return
    if len(failed) == len(told) and all(isinstance(error, Refused) for error in failed):
        raise failed[0]
    first = failed[0]
    raise Unknown(f"{len(failed)} of {len(told)} requests were not carried out: {first}") from first
