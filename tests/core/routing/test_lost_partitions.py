"""What must not be asked of maps that have lost partitions (routing/R-12). Scenarios G2 and G3."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.routing.test_gatherings import ANN, BEN, ME, Desk

from holdfast.config import MapSettings, ServiceSettings, Settings
from holdfast.config.schema import INTERNAL, TRANSACTIONS_MAP
from holdfast.core.messages import Answer, Forward
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import READS, WHOLE, Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.transactions import (
    AskBranch,
    CommitBranch,
    ForgetBranches,
    LockKeys,
    PrepareBranch,
    RollBackBranch,
    TransactionalWrite,
    TransactionStep,
    ValueSeen,
    begins,
    encode,
)
from holdfast.core.routing.gatherings import PARTLY
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.core.routing.request_refusals import RequestRefusals

SETTINGS = Settings(
    maps={
        "default": MapSettings(loss_policy="read-write-safe"),
        "safe": MapSettings(loss_policy="read-write-safe"),
        "strict": MapSettings(loss_policy="read-only-safe"),
        "careless": MapSettings(),
    },
    services={"queue": ServiceSettings()},
)


def losses(partition: int = 1, *maps: str) -> LostPartitions:
    found = LostPartitions(SETTINGS)
    found.learn(partition, maps or ("safe", "strict"))
    return found


def asks(op: Op, name: str, *partitions: int) -> Request:
    return Request(op, name, list(partitions), b"k", b"v")


@pytest.mark.rule("routing/R-12")
@pytest.mark.parametrize("op", [op for op in Op if op not in (Op.CALL, Op.ASK)])
def test_g2_nothing_is_read_or_written_of_a_lost_partition(op: Op) -> None:
    """G2: read and write of p fail with an error of their own, other partitions work."""
    refused = losses().rejection(asks(op, "safe", 1))
    assert refused is not None and refused.status is Status.LOST
    assert losses().rejection(asks(op, "safe", 0)) is None
    assert losses().rejection(asks(op, "safe", 0, 1, 2)) is not None
    assert losses().rejection(asks(op, "other", 1)) is None


@pytest.mark.rule("routing/R-12")
@pytest.mark.parametrize("op", [op for op in Op if op not in (Op.CALL, Op.ASK)])
def test_g3_a_map_that_is_read_only_safe_is_not_written_at_all(op: Op) -> None:
    """G3: READ_ONLY_SAFE: every write to the map fails."""
    refused = losses().rejection(asks(op, "strict", 0))
    assert (refused is None) is (op in READS)
    touched = losses().rejection(asks(op, "strict", 1))
    assert touched is not None and touched.status is Status.LOST


TX, ANNS = b"t" * 16, MemberId("ann")
STEPS = {
    "lock": LockKeys(TX, ANNS, [("careless", b"k"), ("safe", b"k")], 0),
    "write": PrepareBranch(
        TX,
        ANNS,
        [1],
        [TransactionalWrite("careless", b"k", b"v"), TransactionalWrite("safe", b"k", None)],
        [],
        True,
    ),
    "read": PrepareBranch(TX, ANNS, [1], [], [ValueSeen("safe", b"k", None)], False),
}
ENDS = {
    "commit": CommitBranch(TX),
    "roll back": RollBackBranch(TX, ANNS, [1], True),
    "ask": AskBranch(TX, ANNS, [1]),
    "forget": ForgetBranches([TX]),
}


def steps(step: TransactionStep, partition: int) -> Request:
    op = Op.TRANSACT if begins(step) else Op.SETTLE
    return Request(op, TRANSACTIONS_MAP, [partition], value=encode(step))


@pytest.mark.rule("routing/R-12")
@pytest.mark.parametrize("what", STEPS)
def test_g2_a_transaction_begins_nothing_in_what_is_lost(what: str) -> None:
    refused = losses().rejection(steps(STEPS[what], 1))
    assert refused is not None and refused.status is Status.LOST
    assert "map 'safe'" in refused.detail
    assert losses().rejection(steps(STEPS[what], 0)) is None
    assert losses(1, "strict").rejection(steps(STEPS[what], 1)) is None


@pytest.mark.rule("routing/R-12")
def test_g3_a_transaction_writes_nothing_to_a_map_that_is_read_only_safe() -> None:
    writes = PrepareBranch(TX, ANNS, [0], [TransactionalWrite("strict", b"k", b"v")], [], True)
    assert losses().rejection(steps(writes, 0)) is not None
    assert losses().rejection(steps(LockKeys(TX, ANNS, [("strict", b"k")], 0), 0)) is None


@pytest.mark.parametrize("what", ENDS)
def test_g2_what_was_prepared_before_is_ended(what: str) -> None:
    """It may be done elsewhere."""
    assert losses().rejection(steps(ENDS[what], 1)) is None


def test_the_refusal_says_what_is_lost_and_what_helps() -> None:
    found = losses()
    found.learn(4, ("safe",))
    found.learn(5, ("safe",))
    refused = found.rejection(asks(Op.SIZE, "safe", 0, 1, 4, 5))
    assert refused is not None
    assert refused.detail.startswith("partitions 1,4-5 of map 'safe' are lost, and maps.safe.loss_policy is")
    assert "holdfast cluster reset-lost" in refused.detail
    assert "holdfast cluster accept-loss" in refused.detail


def test_it_names_what_was_asked_for_or_else_all_that_is_lost() -> None:
    found = losses()
    found.learn(4, ("strict",))
    for partitions, named in (
        ((0, 1), "partitions 1 of"),
        ((4,), "partitions 4 of"),
        ((0,), "partitions 1,4 of"),
    ):
        refused = found.rejection(asks(Op.SET, "strict", *partitions))
        assert refused is not None
        assert refused.detail.startswith(named)


def test_maps_without_settings_of_their_own_are_lost_with_default() -> None:
    found = losses(2, "default")
    for name in ("default", "whatever"):
        refused = found.rejection(asks(Op.GET, name, 2))
        assert refused is not None and "maps.default.loss_policy" in refused.detail
    for name in ("safe", f"{INTERNAL}schemas"):
        assert found.rejection(asks(Op.GET, name, 2)) is None
        assert not found.concern(name)
    for op in (Op.CALL, Op.ASK):
        assert found.rejection(asks(op, "queue", 2)) is None, "a service has no policy"


def test_a_map_that_has_come_to_ignore_losses_is_used() -> None:
    found = losses(1, "careless", "safe")
    assert found.rejection(asks(Op.GET, "careless", 1)) is None
    assert not found.concern("careless")
    assert found.concern("safe")


def test_what_is_reset_is_used_again() -> None:
    found = losses()
    assert found.any
    found.learn(1, ("strict",))
    assert found.rejection(asks(Op.GET, "safe", 1)) is None
    assert not found.concern("safe")
    assert found.concern("strict")
    found.learn(1, ())
    assert not found.any
    assert found.rejection(asks(Op.SET, "strict", 1)) is None


def test_it_is_said_when_a_map_can_only_be_read_from_now_on() -> None:
    found = LostPartitions(SETTINGS)
    assert not found.learn(1, ("safe",))
    assert found.learn(2, ("strict",))
    assert not found.learn(3, ("strict",)), "that it could before"
    assert not found.learn(2, ())
    assert not found.learn(3, ())
    assert found.learn(3, ("strict",))


def test_refusals_of_losses_come_before_those_of_room() -> None:
    refusals = RequestRefusals(SETTINGS, [Assignment(1, (ME,))], None)  # type: ignore[arg-type]
    assert not refusals.any
    refusals.losses.learn(0, ("safe",))
    assert refusals.any
    refusals.passive = True
    refused = refusals.rejection(asks(Op.SET, "safe", 0))
    assert refused is not None and refused.status is Status.LOST


# -- operations on whole partitions


def losing() -> Desk:
    """A map `m`, which does not ignore losses, of four partitions."""
    return Desk(maps={"m": MapSettings(loss_policy="read-write-safe")})


@pytest.mark.rule("routing/R-12")
@pytest.mark.parametrize("op", sorted(WHOLE))
def test_an_operation_on_a_map_that_has_lost_something_is_refused(op: Op) -> None:
    desk = losing()
    desk.router.refusals.losses.learn(3, ("m",))
    desk.ask(op)
    assert [one.status for one in desk.told] == [Status.LOST]
    assert desk.asked() == {}
    assert desk.idle()


@pytest.mark.rule("routing/R-12")
def test_a_read_that_is_under_way_when_something_is_lost_is_refused_and_a_clear_is_unknown() -> None:
    for op, told in ((Op.SIZE, Status.LOST), (Op.CLEAR, Status.UNKNOWN)):
        desk = losing()
        desk.rows[3] = Assignment(2, (BEN,))
        desk.around.absent = {BEN}
        desk.ask(op)
        desk.says(desk.asked()[ANN], 2)
        desk.does(1)
        desk.router.refusals.losses.learn(3, ("m",))
        desk.pass_time()
        assert [one.status for one in desk.told] == [told]
        assert desk.told[0].detail == (PARTLY if op is Op.CLEAR else desk.told[0].detail)


@pytest.mark.rule("routing/R-12")
def test_a_primary_refuses_what_another_member_asks_before_that_one_knows() -> None:
    desk = losing()
    desk.router.refusals.losses.learn(0, ("m",))
    desk.router.on_forward(ANN, Forward(7, Request(Op.GET, "m", [0], b"k")))
    (answer,) = [one.message for one in desk.taken() if isinstance(getattr(one, "message", None), Answer)]
    assert answer.outcome.status is Status.LOST
    assert msgspec.structs.replace(answer.outcome, detail="") == Outcome(Status.LOST)
