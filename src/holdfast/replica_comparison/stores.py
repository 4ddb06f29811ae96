"""Contents of a member according to the files in its directory, read as the member reads them when it starts.

    state = read_store(Path("/copies/m1"))
    state.copies[17].maps["flights"].state.entries

Nothing is changed, so the files of a running member can be read too, but its latest writes may be missing or
incomplete. Prefer the files of a stopped member, or a copy taken at one moment.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never

import msgspec

from holdfast.config.schema import PersistenceSettings
from holdfast.core.journal.recovery import Recovered
from holdfast.core.model.ids import METASTORE_GROUP, place_of
from holdfast.core.raft_partition.recovered_replica import RecoveredReplica
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.engine.ports import Deed, DeedsDone, DiskFailed
from holdfast.engine.restore import IDENTITY, restore
from holdfast.errors import ConfigError, HoldfastError, JournalBroken
from holdfast.wire.checkpoint import parse_name
from holdfast.wire.journal_blocks import segments

Wanted = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class StoreState:
    folder: str
    store: str
    member: str
    cluster_id: str
    copies: dict[int, PartitionCopy]
    """By partition; only maps with a journal."""
    uncertain: dict[int, str] = field(default_factory=dict)
    """Partitions that may have had more updates than the files have, with the reason."""
    damage: list[str] = field(default_factory=list)
    zones: list[RecoveredReplica] = field(default_factory=list)
    """Replicas of partitions of zones."""
    zone_doubts: list[str] = field(default_factory=list)
    """Wanted ones that cannot be read, with the reason."""

    @property
    def label(self) -> str:
        return self.member or Path(self.folder).name


def read_store(folder: str | Path, wanted: Wanted = lambda partition: True) -> StoreState:
    """`wanted`: of partitions, and of groups by their numbers; others are left out and cost little memory. Raises
    ConfigError if there are no files of a member, JournalBroken if their identity is unreadable.
    """
    disk = _ReadOnly(Path(folder), wanted)
    if IDENTITY not in disk.names():
        raise ConfigError(
            f"{folder} has no {IDENTITY}: give the directory that persistence.directory names, or a copy of all of it"
        )
    try:
        found, recovered = restore(
            disk, PersistenceSettings(), name="", uuid="", new_id=_no_identity, now_ns=0, wall_ms=0
        )
    except (ConfigError, JournalBroken) as error:
        raise type(error)(f"{folder}: {error}") from error
    zones, doubts = _zones_of(recovered, wanted)
    return StoreState(
        str(folder),
        recovered.store,
        found.identity.member,
        recovered.cluster_id,
        {partition: copy for partition, copy in recovered.copies.items() if wanted(partition)},
        {partition: why for partition, why in recovered.uncertain.items() if wanted(partition)},
        recovered.damage,
        zones,
        doubts,
    )


def _zones_of(recovered: Recovered, wanted: Wanted) -> tuple[list[RecoveredReplica], list[str]]:
    """The replicas of zones, and why some of them cannot be read."""
    found, doubts = [], []
    for number, group in recovered.groups.items():
        zone, partition = place_of(number)
        if number == METASTORE_GROUP or not wanted(number):
            continue
        try:
            why = group.doubt
            if not why:
                found.append(RecoveredReplica(number, group))
        except msgspec.MsgspecError as error:
            why = str(error)
        if why:
            doubts.append(f"partition {partition} of zone {zone}: {why}")
    return found, doubts


def checkpoint_bytes(folder: str | Path) -> int:
    """Bytes of all checkpoints and segments in a directory. Raises ConfigError if it cannot be read."""
    try:
        paths = list(Path(folder).iterdir())
        return sum(path.stat().st_size for path in paths if parse_name(path.name) or segments([path.name]))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}") from error


def _no_identity() -> Never:
    raise HoldfastError("a directory that is only read gets no identity")


class _ReadOnly:
    """The reading part of `engine.ports.Disk` over a directory that is never written."""

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self._folder = folder
        self._wanted = wanted

    def names(self) -> list[str]:
        """The files without checkpoints of unwanted partitions, which are large."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError as error:
            raise ConfigError(
                f"{self._folder} cannot be read: {os.strerror(error.errno or errno.EIO)}"
            ) from error
        said = {name: parse_name(name) for name in names}
        return sorted(
            name
            for name, checkpoint in said.items()
            if (checkpoint is not None and self._wanted(checkpoint.partition))
            or name == IDENTITY
            or segments([name])
        )

    def size(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        try:
            with (self._folder / name).open("rb", buffering=0) as file:
                if offset:
                    file.seek(offset)
                return file.readall() if size < 0 else file.read(size) or b""
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskFailed(f"{self._folder / name} cannot be read: {error}") from error

    def submit(self, deeds: Sequence[Deed], done: DeedsDone, *, line: str = "journal") -> None:
        raise DiskFailed(f"{self._folder} is only read")

    def wall_ms(self) -> int:
        return 0

    def after(self, delay_ns: int, deed: Callable[[], None]) -> None:
        raise DiskFailed(f"{self._folder} is only read")

    def close(self) -> None:
        return None
