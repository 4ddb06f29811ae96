"""A damaged copy counts as repaired only if it was compared with its primary's."""

from __future__ import annotations

import msgspec
from tests.lab.sim.stage import Stage

from holdfast_lab.sim.damage import Damage, mended


def test_a_copy_at_another_version_than_its_primary_is_undecided() -> None:
    """Seed 73006 (zones): a backup had applied an assignment that its primary had not, and passed for repaired."""
    stage = Stage(2)
    stage.put(stage.processes[0], "k", "value")
    partition = stage.partition("k")
    primary, (backup,) = stage.owner_of("k").driver.member, stage.backups_of("k")
    member = backup.driver.member
    damage = Damage(backup, partition, stage.MAP, "rot")
    assert mended(damage, primary)
    entries = member.copies.held[partition].maps[stage.MAP].state.entries
    ((key, value),) = entries.items()
    entries[key] = b"rotten"
    assert not mended(damage, primary)
    row = member.table.rows[partition]
    member.table.rows[partition] = msgspec.structs.replace(row, version=row.version + 1)
    assert not mended(damage, primary)
    entries[key] = value
    assert not mended(damage, primary), "it is compared when both have the same assignment"
    member.table.rows[partition] = row
    assert mended(damage, primary)
