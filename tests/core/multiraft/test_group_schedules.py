"""Random schedules of members with groups: nothing that must not happen does, and nothing answered is lost."""

from __future__ import annotations

import pytest
from tests.core.multiraft.group_schedules import NUMBERS, Storm

from holdfast.core.multiraft import group_host, snapshot_transfer


@pytest.mark.rule("multiraft/H-1", "multiraft/H-4")
@pytest.mark.parametrize("seed", range(0, 12, 3))
def test_groups_keep_their_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 8)
    monkeypatch.setattr(snapshot_transfer, "STATE_BYTES", 16)
    for one in range(seed, seed + 3):
        storm = Storm(one)
        storm.run(900)
        storm.settle()
        for number in NUMBERS:
            assert storm.leader(number).groups.current(number)
            applied = [storm.applied(at, number) for at in (1, 2, 3)]
            assert applied[0] == applied[1] == applied[2], f"{one}: all have the same"
            committed = [
                entry.data for _, entry in sorted(storm.judges[number].committed.items()) if entry.data
            ]
            assert applied[0] == committed, f"{one}: all that was committed"
