"""A member with persistence: recovered from its files, its driver connected to its journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from holdfast.config import Settings
from holdfast.core.hosted_services import Service
from holdfast.core.journal.recovery import Recovered, Recovery
from holdfast.core.member import Member
from holdfast.core.membership.identity import Identity
from holdfast.core.primary_backup.lane import PLAIN, Ways
from holdfast.engine.driver import Driver
from holdfast.engine.journal import Journal
from holdfast.engine.ports import Disk, World
from holdfast.engine.recording import RecordedRecovery, Recorder, restored_of
from holdfast.errors import JournalBroken


def driver_with_files(
    disk: Disk,
    world: World,
    identity: Identity,
    settings: Settings,
    services: Sequence[Service] = (),
    *,
    name: str,
    new_id: Callable[[], str],
    failed: Callable[[JournalBroken], None],
    recorder: Recorder | None = None,
    ways: Ways = PLAIN,
) -> tuple[Driver, Journal, Recovered]:
    """Recover a member from a disk. Start the driver when the journal is ready (`when_ready`).

    `name` is compared with the files' owner. `failed` is called when the journal cannot write any more.
    `ways`: compiled implementations. Raises ConfigError for another member's files, JournalBroken for files
    that cannot be trusted.
    """
    recoveries: list[RecordedRecovery] = []

    def recorded(now_ns: int, wall_ms: int) -> RecordedRecovery:
        recoveries.append(RecordedRecovery(now_ns, wall_ms))
        return recoveries[-1]

    journal, recovered = Journal.open(
        disk,
        settings.persistence,
        name=name,
        uuid=identity.info.uuid,
        new_id=new_id,
        now_ns=world.now_ns(),
        wall_ms=world.wall_ms(),
        recovering=partial(Recovery, entries=ways.entries) if recorder is None else recorded,
        levels=identity.info.levels,
    )
    info = msgspec.structs.replace(
        identity.info,
        store=recovered.store,
        incarnation=recovered.incarnation,
        returns=bool(recovered.cluster_id),
        proof=recovered.proof,
        behind=recovered.behind,
    )
    known = dataclasses.replace(
        identity,
        info=info,
        cluster_id=recovered.cluster_id,
        seen=recovered.view,
        level=journal.identity.level,
    )
    member = Member(known, settings, services, recovered, ways)
    driver = Driver(member, world)
    if recorder is not None:
        restored = restored_of(recovered, recoveries[-1])
        names = [service.name for service in services]
        driver.record(recorder.begin(info.name, settings, known, names, restored))
    driver.journal = journal
    journal.connect(driver.handle, failed)

    def changed() -> None:
        view = member.picture.view
        if view is not None and (member.picture.assigned or not view.recovering):
            journal.admitted(view.cluster_id, behind=member.picture.info.behind)
            if member.picture.assigned and not member.picture.stale and not member.picture.unsafe_reason():
                # Everything that these files had lost has been restored from other members.
                journal.forgive()

    driver.callers.watch(changed)
    return driver, journal, recovered
