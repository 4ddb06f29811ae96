"""The directory of a member: opened at the start, read into the member, and written by its journal."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid as uuids
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import msgspec

from holdfast.config import Settings
from holdfast.core.hosted_services import Service
from holdfast.core.journal.recovery import Recovered
from holdfast.core.membership.identity import Identity
from holdfast.core.model.member_status import FilesStatus
from holdfast.core.primary_backup.lane import Ways
from holdfast.engine.driver import Driver
from holdfast.engine.journal import Journal
from holdfast.engine.member_files import driver_with_files
from holdfast.engine.ports import World
from holdfast.errors import NotInstalled
from holdfast.runtime.compiled import compiled_from
from holdfast.runtime.disk.real_disk import RealDisk, WriteThread, uncollected

THREAD = "holdfast.runtime.disk.write_thread"

log = logging.getLogger("holdfast")


def compiled_thread() -> Callable[[], WriteThread] | None:
    """Starts the compiled thread of a journal; None: it is not built, or of another source."""
    module, _ = compiled_from(THREAD, Path(__file__).with_name("write_thread.pyx"))
    return None if module is None else cast("Callable[[], WriteThread]", module.WriteThread)


class DataDirectory:
    def __init__(
        self,
        directory: Path,
        loop: asyncio.AbstractEventLoop,
        guard: Callable[[Callable[[], None]], None],
        *,
        compiled: bool = False,
    ) -> None:
        """`compiled`: use the compiled thread for the journal, where it is built. Raises NotInstalled when
        checkpoints could not be written, ConfigError when another process has it open.
        """
        if find_spec("pyarrow") is None:
            # Not only at the first checkpoint: by then clients rely on the files.
            raise NotInstalled.of(
                f"persistence.directory is {str(directory)!r}: checkpoints are Parquet files",
                "pyarrow",
                "arrow",
            )
        self._directory = directory
        self.disk = RealDisk(directory, loop, guard, compiled_thread() if compiled else None)
        self._journal: Journal | None = None

    def open(
        self,
        world: World,
        identity: Identity,
        settings: Settings,
        services: Sequence[Service],
        ways: Ways,
        failed: Callable[[BaseException], None],
    ) -> Driver:
        """Read everything; returns the driver of the member that holds it. Call `ready` before it acts."""
        began_s = time.monotonic()
        log.info("opening %s", self._directory)
        try:
            with uncollected():
                driver, self._journal, recovered = driver_with_files(
                    self.disk,
                    world,
                    identity,
                    settings,
                    services,
                    name=settings.member.name,
                    new_id=lambda: str(uuids.uuid4()),
                    failed=failed,
                    ways=ways,
                )
        except BaseException:
            self.disk.close()
            raise
        self._log(recovered, time.monotonic() - began_s)
        return driver

    def _log(self, recovered: Recovered, seconds: float) -> None:
        if not recovered.whole:
            log.error(
                "%s has lost something that was durable; the other members make up for it", self._directory
            )
        for what in recovered.damage:
            log.warning("in %s: %s", self._directory, what)
        for partition, why in sorted(recovered.uncertain.items()):
            log.error("partition %d: it may be that not all of it is here: %s", partition, why)
        entries = sum(copy.entry_count() for copy in recovered.copies.values())
        log.info(
            "files opened: %d entries of %d partitions, in %.1f s (start %d from this directory)",
            entries,
            len(recovered.copies),
            seconds,
            recovered.incarnation,
        )

    async def ready(self, ended: asyncio.Event) -> bool:
        assert self._journal is not None, "it is open"
        ready = asyncio.Event()
        self._journal.when_ready(ready.set)
        waits = {asyncio.create_task(ready.wait()), asyncio.create_task(ended.wait())}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return ready.is_set()

    def figures(self) -> dict[str, object]:
        return self._journal.figures() if self._journal is not None else {}

    def status(self) -> FilesStatus | None:
        figures = self.figures()
        if not figures:
            return None
        return msgspec.convert({**figures, "directory": str(self._directory.absolute())}, FilesStatus)
