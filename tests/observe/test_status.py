"""The status of one member: which of its copies are not complete."""

from __future__ import annotations

import pytest
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.core.messages import Fill
from holdfast.core.model.ids import MemberId
from holdfast.core.model.member_status import IncompleteCopies
from holdfast.core.primary_backup.staging_replica import StagingReplica
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.observe import status as under_test
from holdfast.observe.status import counted, counting, status_of


def test_copies_with_gaps_and_those_that_are_filled_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "COUNTED", 1)

    async def story() -> None:
        async with cluster(1) as members:
            await members[0].map("m").put_all(dict.fromkeys(range(50), "value"))
            member = members[0]._node.member
            assert status_of(member, counted(member)).incomplete == IncompleteCopies(0, 0)

            damaged, other = [copy for copy in member.copies.held.values() if "m" in copy.maps][:2]
            updates = damaged.maps["m"].updates
            updates.update(updates.hwm + 2, 3)
            assert updates.lwm < updates.hwm
            copy = PartitionCopy(other.partition, other.epoch)
            fill = Fill(other.partition, 1, 1, 0, False, other.epoch, True, 1, [])
            open_map = lambda copy, name: copy.open(name)  # noqa: E731
            member.copies.staging[other.partition] = StagingReplica(MemberId("x"), fill, copy, open_map)
            copy.open("m").updates.update(7)
            assert status_of(member, counted(member)).incomplete == IncompleteCopies(1, 2)
            assert len(list(counting(member))) > 2, "in slices"
            del member.copies.staging[other.partition]
            assert status_of(member, counted(member)).incomplete == IncompleteCopies(0, 1)

    run(story())
