"""The tree of errors.

    HoldfastError
    ├── ConfigError              a setting is wrong; nothing was started
    │   └── NotInstalled         a package is missing; the message says which extra brings it
    ├── RequestError             one request failed
    │   ├── Refused              certainly not applied; safe to try again
    │   │   └── Moved, NotReady (Unreachable), Denied, TooLarge, Closing, Passive, NoRoom, NoMemory,
    │   │       NoDataMember, PartitionLost, Unsupported, ProcessorFailed
    │   ├── Unknown              it may or may not have been applied
    │   └── Standing             an order was accepted and is not carried out yet
    ├── CutLost                  no member keeps the cut any more
    ├── ChangesGone              no member keeps the changes that a reader has not seen yet
    ├── ProtocolError            bytes from a peer or client that break the protocol
    ├── JournalBroken            the disk failed, or its files are not credible; the member stops
    └── InvariantBroken          a bug in Holdfast; the member stops
        └── CounterBroken        impossible update numbers

The three answers of a request (done, rejected, unknown) are never mixed up: rule 11 of the design.
"""

from __future__ import annotations

from collections.abc import Sequence


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises on purpose."""


class ConfigError(HoldfastError):
    """A setting is wrong. The message names the key and the values it may take; nothing was started."""


class NotInstalled(ConfigError, ImportError):
    """A package is missing. The message says what needs it, and which extra brings it."""

    @classmethod
    def of(cls, what: str, package: str, extra: str) -> NotInstalled:
        """`what`: what the package is needed for, as a sentence without its end."""
        return cls(f"{what}, and {package} is not installed: pip install '.[{extra}]' in the source folder")


class RequestError(HoldfastError): ...


class Refused(RequestError):
    """The request was certainly not applied; it is safe to send it again."""


class Moved(Refused):
    """The partition is on another member or moving; ask again with the newest partition table."""


class NotReady(Refused):
    """No member can serve this partition now (cluster forming, copies lost, or no majority)."""


class Unreachable(NotReady):
    """None of the members that were asked could be reached, or answered; nothing was changed."""


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
    """The cluster has only lite members, so no member can hold an entry until a data member joins."""


class NoMemory(Refused):
    """The memory of a member that would have to keep the write is nearly full (`limits.memory_bytes`): entries can be
    read and removed, not stored, until there is room again.
    """


class PartitionLost(Refused):
    """Partitions of the map are lost, and `maps.*.loss_policy` does not ignore that. The message names them. It lasts
    until the operator releases them (`holdfast cluster reset-lost`).
    """


class Unsupported(Refused):
    """The operation exists in the protocol, but not in Holdfast; the message names it."""


class ProcessorFailed(Refused):
    """An entry processor raised an error, took too long, or is unknown; the message says which. Nothing was changed."""


class RolledBack(Refused):
    """A transaction was rolled back: nothing of it was applied. It may be tried again."""


class Unknown(RequestError):
    """The request may or may not have been applied; read before you write again."""


class Standing(RequestError):
    """An order was accepted and is not carried out yet; it will be as soon as possible."""


class CutLost(HoldfastError):
    """No member keeps the cut any more: its lease has ended, or all its holders are gone. Take a new one."""


class ChangesGone(HoldfastError):
    """Changes of a map that a reader has not seen yet are gone: no member keeps them any more."""

    def __init__(self, map_name: str, partition: int, after: int, upto: int, why: str) -> None:
        """The updates after `after` up to `upto` of this map in this partition are gone; `why`, in words."""
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
        """Support pickling: the error travels between processes."""
        return ChangesGone, (self.map_name, self.partition, self.after, self.upto, self.why)


class ProtocolError(HoldfastError):
    """Bytes that break the protocol. Only the connection they came from is closed."""


class UnknownMessage(ProtocolError):
    """A message of an unknown kind, perhaps of a newer Holdfast."""


class InvariantBroken(HoldfastError):
    """An invariant of the code is broken: a bug in Holdfast. The member stops rather than guess."""


class CounterBroken(InvariantBroken):
    """Impossible input to an update counter: a range that is applied in part, or too many gaps."""


class JournalBroken(HoldfastError):
    """The journal cannot be written (a failed write or fsync), or its files are not credible. The member stops."""


class NewerFiles(JournalBroken):
    """Sound files of a format or a feature level that this Holdfast does not know. Nothing was changed."""


def raise_worst(told: Sequence[object]) -> None:
    """For a change that was several requests, with their results: raise Refused if none was applied, Unknown if some
    may have been applied and others were not.
    """
    failed = [result for result in told if isinstance(result, BaseException)]
    if not failed:
        return
    if len(failed) == len(told) and all(isinstance(error, Refused) for error in failed):
        raise failed[0]
    first = failed[0]
    raise Unknown(f"{len(failed)} of {len(told)} requests were not carried out: {first}") from first
