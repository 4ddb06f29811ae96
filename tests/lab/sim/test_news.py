"""What members are told of migrations and losses, and the safety of the table, in the simulated world."""

from __future__ import annotations

from functools import partial

from tests.lab.sim.stage import Stage, settings, slots

from holdfast.actions.drain import Drain
from holdfast.actions.set_state import SetState
from holdfast.core.events import ActionRequested
from holdfast.core.model.partition_events import Kind, News
from holdfast.core.model.views import ClusterState
from holdfast_lab.sim.world import Process


def hear(process: Process) -> list[News]:
    heard: list[News] = []
    process.driver.callers.on_news(heard.append)
    return heard


def test_one_join_is_one_process_told_to_every_member_once() -> None:
    stage = Stage(2, spare=1)
    heard = [hear(process) for process in stage.processes]
    before = slots(stage.processes[0])
    joiner = stage.cluster.start(2)
    heard.append(hear(joiner))
    stage.processes.append(joiner)
    stage.rest()
    stage.wait(2)
    after = slots(stage.processes[0])
    assert heard[0] == heard[1] == heard[2]
    kinds = [news.kind for news in heard[0]]
    assert kinds[0] is Kind.STARTED and kinds[-1] is Kind.FINISHED
    assert kinds.count(Kind.STARTED) == kinds.count(Kind.FINISHED) == 1
    done = [news for news in heard[0] if news.kind is Kind.COMPLETED]
    last = heard[0][-1]
    assert len(done) == last.planned == last.completed > 0 and last.failed == last.remaining == 0
    assert [news.completed for news in done] == list(range(1, len(done) + 1))
    assert {news.process for news in heard[0]} == {heard[0][0].number}
    rows = list(before)
    for news in done:
        assert news.migration is not None
        rows[news.migration.partition] = news.migration.apply_to(rows[news.migration.partition])
    assert rows == after, "the migrations told are those that made the table"


def test_a_plan_that_is_cut_short_ends_and_another_begins() -> None:
    stage = Stage(2, spare=2, settings=settings(partitions={"parallel_migrations": 1}))
    heard = hear(stage.processes[0])
    stage.world.weather.delay_ns = (40_000_000, 60_000_000)
    stage.processes.append(stage.cluster.start(2))
    while not any(news.kind is Kind.COMPLETED for news in heard):
        stage.wait(0.05)
    stage.processes.append(stage.cluster.start(3))
    stage.rest()
    ends = [news for news in heard if news.kind is Kind.FINISHED]
    starts = [news for news in heard if news.kind is Kind.STARTED]
    assert len(ends) == len(starts) >= 2
    assert ends[0].completed < ends[0].planned
    assert ends[-1].completed == ends[-1].planned


def test_a_crash_is_one_process_of_promotions_and_one_of_new_copies() -> None:
    stage = Stage(3)
    listener = stage.processes[1]
    heard = hear(listener)
    gone = stage.processes.pop(2)
    owned = [p for p, row in enumerate(slots(gone)) if row[0] == gone.driver.member.me]
    gone.crash()
    stage.rest()
    losses = [news.loss for news in heard if news.loss is not None]
    assert sorted(loss.partition for loss in losses) == owned
    assert all(loss.lost_backups == 0 and not loss.all_lost and loss.maps == [] for loss in losses)
    starts = [news.planned for news in heard if news.kind is Kind.STARTED]
    assert len(starts) == 2 and starts[0] == len(owned)
    promoted = [news.migration for news in heard if news.kind is Kind.COMPLETED][: len(owned)]
    assert all(m and m.source is None and m.destination_new == 0 for m in promoted)


def test_a_new_master_ends_the_process_of_the_one_before() -> None:
    stage = Stage(4, backups=2, spare=1)
    heard = hear(stage.processes[1])
    stage.world.weather.delay_ns = (40_000_000, 60_000_000)
    stage.processes.append(stage.cluster.start(4))
    while not any(news.kind is Kind.COMPLETED for news in heard):
        stage.wait(0.05)
    stage.processes.pop(0).crash()
    stage.rest()
    starts = [news.number for news in heard if news.kind is Kind.STARTED]
    ends = [news.process for news in heard if news.kind is Kind.FINISHED]
    assert starts == ends
    assert len({news.number for news in heard}) == len(heard), "told twice"


def test_lost_partitions_are_told_once_with_the_maps_that_lost_entries() -> None:
    stage = Stage(3, backups=0)
    heard = [hear(process) for process in stage.processes[:2]]
    gone = stage.processes.pop(2)
    owned = [p for p, row in enumerate(slots(gone)) if row[0] == gone.driver.member.me]
    gone.crash()
    stage.wait(20)
    for news in heard:
        losses = [one.loss for one in news if one.loss is not None]
        assert sorted(loss.partition for loss in losses) == owned
        assert all(loss.all_lost and not loss.begun_anew for loss in losses)


def test_with_the_loss_accepted_the_partition_begins_anew_and_names_the_maps() -> None:
    stage = Stage(3, settings=settings(0, partitions={"lost": "accept"}))
    heard = hear(stage.processes[1])
    gone = stage.processes.pop(2)
    owned = [p for p, row in enumerate(slots(gone)) if row[0] == gone.driver.member.me]
    gone.crash()
    stage.rest()
    losses = [one.loss for one in heard if one.loss is not None]
    assert sorted(loss.partition for loss in losses) == owned
    assert all(loss.all_lost and loss.begun_anew and loss.maps == ["default"] for loss in losses)


def test_graceful_leaves_and_joins_lose_nothing_and_say_so() -> None:
    stage = Stage(5, spare=1)
    heard = hear(stage.processes[0])
    for going in (stage.processes.pop(4), stage.processes.pop(3)):
        going.step(partial(going.driver.handle, ActionRequested(Drain())))
    stage.processes.append(stage.cluster.start(5))
    stage.rest()
    assert [news for news in heard if news.kind is Kind.LOST] == []


def test_completed_migrations_are_kept_until_everyone_has_them() -> None:
    stage = Stage(3, spare=1)
    master, _, deaf = stage.processes
    chronicles = [process.driver.member.table_replication.event_log for process in stage.processes]
    heard = hear(master)
    stage.processes.append(stage.cluster.start(3))
    while not any(news.kind is Kind.COMPLETED for news in heard):
        stage.wait(0.01)
    for other in stage.processes:
        if other is not deaf:
            stage.cut(deaf, other)
    stage.wait(2)
    assert [news.kind for news in chronicles[0].kept if news.kind is Kind.COMPLETED], (
        "the list was empty too early"
    )
    stage.heal()
    stage.rest()
    stage.wait(5)
    assert [one.kept for one in chronicles] == [[], [], []]
    assert master.driver.member.membership.is_master


def test_who_was_away_in_the_middle_of_a_process_hears_its_end_once() -> None:
    stage = Stage(4, backups=2, spare=1)
    away = stage.processes[2]
    heard = hear(away)
    stage.world.weather.delay_ns = (40_000_000, 60_000_000)
    stage.processes.append(stage.cluster.start(4))
    while not any(news.kind is Kind.STARTED for news in heard):
        stage.wait(0.05)
    stage.isolate(away)
    stage.wait(15)
    stage.heal()
    stage.rest()
    starts = [news.process for news in heard if news.kind is Kind.STARTED]
    ends = [news.process for news in heard if news.kind is Kind.FINISHED]
    assert starts == ends


def test_a_member_that_has_not_applied_a_round_when_the_view_changes_is_told_all_the_same() -> None:
    """All have stored the round and the master has applied it; its word of that does not reach one in this view."""
    stage = Stage(3)
    master, other, late = stage.processes
    heard = [hear(process) for process in stage.processes]
    table_replication = late.driver.member.table_replication
    table_replication._apply_up_to = lambda number: None  # type: ignore[method-assign]
    other.crash()
    stage.processes.remove(other)
    while not any(news.kind is Kind.LOST for news in heard[0]):
        stage.wait(0.01)
    assert not heard[2]
    del table_replication._apply_up_to
    master.step(lambda: master.driver.handle(ActionRequested(SetState(ClusterState.NO_MIGRATION))))
    stage.wait(10)
    assert [news.number for news in heard[2]] == [news.number for news in heard[0]]


def test_what_one_member_was_told_by_a_master_that_died_is_told_to_all() -> None:
    """The master applies a round, tells one member of it, and dies: the next master passes the news on."""
    stage = Stage(5, backups=2)
    master, *others = stage.processes
    heard = [hear(process) for process in others]
    for deaf in others[1:]:
        deaf.driver.member.table_replication._apply_up_to = lambda number: None  # type: ignore[method-assign]
    gone = others.pop(3)
    gone.crash()
    while not any(news.kind is Kind.LOST for news in heard[0]):
        stage.wait(0.01)
    for deaf in others[1:]:
        del deaf.driver.member.table_replication._apply_up_to
    told = len(heard[0])
    master.crash()
    stage.processes = others
    stage.rest()
    assert [news.number for news in heard[1][:told]] == [news.number for news in heard[0][:told]]
    assert (
        [news.number for news in heard[0]]
        == [news.number for news in heard[1]]
        == [n.number for n in heard[2]]
    )


def test_a_migration_that_is_taken_back_is_told_as_failed_and_not_as_completed() -> None:
    """The rows are offered, but the destination dies before a majority can commit them."""
    stage = Stage(4, backups=1, spare=1)
    master = stage.processes[0]
    heard = hear(master)
    table_replication = master.driver.member.table_replication
    joiner = stage.cluster.start(4)
    while not any(p for p in master.driver.member.migrations.running.values() if p.committing):
        stage.wait(0.002)
    offered = {
        p: row.version
        for p, row in enumerate(table_replication.head)
        if row.version > table_replication.table.rows[p].version
    }
    for process in stage.processes:
        stage.cut(joiner, process)
    joiner.crash()
    stage.heal()
    stage.rest()
    completed = {
        (n.migration.partition, n.version) for n in heard if n.kind is Kind.COMPLETED and n.migration
    }
    rows = table_replication.table.rows
    for partition, version in offered.items():
        if joiner.driver.member.me not in rows[partition].replicas and (partition, version) in completed:
            told = [n for n in heard if n.migration and n.migration.partition == partition]
            assert not any(n.kind is Kind.FAILED and n.version > version for n in told), "told as both"
    ends = [news for news in heard if news.kind is Kind.FINISHED]
    assert all(news.completed + news.failed <= news.planned for news in ends)
