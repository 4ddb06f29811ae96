"""The identity file of a member's store: its lives, cluster and feature level."""

from __future__ import annotations

import msgspec

from holdfast.core.model.views import FilesProof
from holdfast.engine.journal_disk import JournalDisk
from holdfast.engine.ports import Deed, Put
from holdfast.engine.restore import IDENTITY, IdentityFile
from holdfast.engine.write_progress import WriteProgress


class StoreIdentity:
    """The newest content of the file, which may not be durable yet."""

    __slots__ = ("_disk", "_progress", "incarnation", "value")

    def __init__(self, value: IdentityFile, disk: JournalDisk, progress: WriteProgress) -> None:
        self.value = value
        self.incarnation = value.incarnation + 1
        self._disk = disk
        self._progress = progress

    def admit(self, cluster_id: str, *, behind: bool) -> None:
        """`behind`: the cluster found that the files lack what they once held."""
        old = self.value
        if cluster_id == old.cluster_id and old.incarnation == self.incarnation:
            return
        self.value = msgspec.structs.replace(
            old,
            incarnation=self.incarnation,
            cluster_id=cluster_id,
            proof=FilesProof(before=old.proof.token or old.proof.before),
            behind=old.behind or behind,
        )

        def durable() -> None:
            self._progress.admitted = True

        self._disk.submit([self.put()], durable)

    def forgive(self) -> None:
        """The cluster has replaced what these files had lost: the next restart need not report it."""
        if not self.value.whole or self.value.behind:
            self.value = msgspec.structs.replace(self.value, whole=True, behind=False)
            self._disk.submit([self.put()], lambda: None)

    def rise(self, level: int) -> list[Deed]:
        """The operations after which blocks may be of this feature level (engine/W-9)."""
        if level <= self.value.level:
            return []
        self.value = msgspec.structs.replace(self.value, level=level)
        return [self.put()]

    def put(self) -> Put:
        data = msgspec.json.encode(self.value)
        return Put(lambda: (IDENTITY, data))
