"""Plans: amounts, scenarios, risk, blocks; without Spark."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from tests.statuses import status

from holdfast.core.model.migration import ReplicaList
from holdfast.core.placement.affinity import rendezvous
from holdfast.core.placement.dryrun import forecast
from holdfast.core.placement.layout import Candidate, arrange, moves
from holdfast.errors import ConfigError
from holdfast.planning.amounts import Sizes, parse_bytes, parse_rate, parse_sizes, parse_time
from holdfast.planning.forecast import Figures, Hazards, Network, ask, foresee
from holdfast.planning.live_cluster import LiveCluster
from holdfast.planning.risk import (
    SHAPES,
    Failures,
    Shape,
    any_lost,
    in_a_year,
    losses_a_year,
    set_lost,
)
from holdfast.planning.scenarios import parse, synthetic
from holdfast.planning.walk import Walk, outlooks, shares

YEAR_S = 365.25 * 86_400


# -- amounts ----------------------------------------------------------------------------------------------------------


def test_amounts_are_read_as_people_write_them() -> None:
    assert parse_bytes("64KiB") == 65_536
    assert parse_bytes("1.5 MB") == 1_500_000
    assert parse_rate("1Gbit") == parse_rate("125MB/s") == 125_000_000
    assert parse_time("90d", "x") == 90 * 86_400
    assert parse_time("500ms", "x") == 0.5
    for wrong in ("", "ten", "10 parsec", "-1s", "1e999s", "1e308y"):
        with pytest.raises(ConfigError):
            parse_time(wrong, "x")
    for wrong in ("0MB", "1e999MB", "1e999Gbit"):
        with pytest.raises(ConfigError):
            parse_rate(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "1e999", "1e19", "uniform:1..1e999", "lognormal:1MiB,nan", "lognormal:1MiB,inf", "lognormal:1MiB,-1",
        "lognormal:1MiB,900", "lognormal:1e999,1",
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_counted_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        parse_sizes(wrong)


def test_sizes_are_drawn_as_the_distribution_says_and_the_same_for_each_partition() -> None:
    uniform = parse_sizes("uniform:1MB..3MB", seed=5)
    drawn = [uniform.of(partition) for partition in range(20_000)]
    assert drawn == [parse_sizes("uniform:1MB..3MB", seed=5).of(partition) for partition in range(20_000)]
    assert min(drawn) >= 1_000_000 and max(drawn) <= 3_000_000
    assert sum(drawn) / len(drawn) == pytest.approx(2_000_000, rel=0.01)
    assert drawn != [parse_sizes("uniform:1MB..3MB", seed=6).of(partition) for partition in range(20_000)]
    lognormal = parse_sizes("lognormal:1MB,1.5")
    drawn = sorted(lognormal.of(partition) for partition in range(20_000))
    assert drawn[10_000] == pytest.approx(1_000_000, rel=0.05)
    assert sum(drawn) / len(drawn) == pytest.approx(1_000_000 * math.exp(1.5**2 / 2), rel=0.1)
    assert parse_sizes("4096").of(7) == 4096


def test_measured_sizes_come_from_a_file(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "sizes"
    file.write_text("[10, 20, 30]")
    assert [parse_sizes(f"file:{file}").of(partition) for partition in range(4)] == [10, 20, 30, 10]
    file.write_text("1\n2\n")
    assert parse_sizes(f"file:{file}").of(1) == 2
    for wrong in ("[1, -2]", "[]", "x", "[1e999]", "[NaN]", "[10000000000000000000]"):
        file.write_text(wrong)
        with pytest.raises(ConfigError):
            parse_sizes(f"file:{file}")


# -- scenarios --------------------------------------------------------------------------------------------------------


def test_scenarios_name_whom_they_concern() -> None:
    here = synthetic(6, 3)
    told = parse("crash-zone:g1, join:2+drain:1, drain:m00003", here)
    assert [step.text for step in told.steps] == ["crash-zone:g1", "join:2+drain:1", "drain:m00003"]
    zone, both, last = told.steps
    assert zone.crash == ("m00001", "m00004")
    assert both.drain == ("m00000",)
    assert [(each.uuid, each.group) for each in both.join] == [("join-1", "g0"), ("join-2", "g2")]
    assert last.drain == ("m00003",)


def test_a_rolling_restart_takes_one_group_after_the_other() -> None:
    told = parse("rolling-restart", synthetic(6, 3))
    assert [step.drain for step in told.steps[::2]] == [
        ("m00000", "m00003"),
        ("m00001", "m00004"),
        ("m00002", "m00005"),
    ]
    for gone, back in zip(told.steps[::2], told.steps[1::2], strict=True):
        assert tuple(each.uuid for each in back.join) == gone.drain
    assert len(parse("rolling-restart:4", synthetic(6, 0)).steps) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "join",
        "join:0",
        "join:@x",
        "join:1@",
        "backups:7",
        "placement:best",
        "now:1",
        "drain:9",
        "drain:3",
        "crash:nobody",
        "crash-zone:7",
        "explode:1",
        "rolling-restart+join:1",
        "rolling-restart:3",
    ],
)
def test_what_cannot_happen_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError):
        parse(wrong, synthetic(3, 0))


# -- risk -------------------------------------------------------------------------------------------------------------


def exactly_lost(rows: list[tuple[int, ...]], members: int, p: float) -> float:
    """The probability that all members of some row crash, by looking at every case."""
    total = 0.0
    for crashed in itertools.product((False, True), repeat=members):
        if any(all(crashed[member] for member in row) for row in rows):
            count = sum(crashed)
            total += p**count * (1 - p) ** (members - count)
    return total


def window(p: float) -> float:
    """The window in which a member with a mean time of 1 s crashes with this probability."""
    return -math.log1p(-p)


def test_sets_that_share_no_member_are_lost_as_the_closed_form_says() -> None:
    failures, p = Failures(1.0), 0.2
    rows = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    closed = 1 - (1 - p**3) ** 3
    assert any_lost({(1, 1, 1): 3}, failures, window(p)) == pytest.approx(closed, rel=1e-12)
    assert exactly_lost(rows, 9, p) == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize("p", [0.3, 0.05, 0.002])
def test_when_every_set_holds_something_the_bound_is_above_the_binomial_tail_and_meets_it(p: float) -> None:
    """With all C(n, 3) sets in use, something is lost exactly when 3 of the n members crash: a binomial tail."""
    members, copies = 8, 3
    rows = list(itertools.combinations(range(members), copies))
    tail = sum(
        math.comb(members, count) * p**count * (1 - p) ** (members - count)
        for count in range(copies, members + 1)
    )
    assert exactly_lost(rows, members, p) == pytest.approx(tail, rel=1e-9)
    bound = any_lost({(1,) * copies: len(rows)}, Failures(1.0), window(p))
    assert bound >= tail
    if p < 0.01:
        assert bound == pytest.approx(tail, rel=0.02)


def test_the_bound_is_a_bound_for_any_rows() -> None:
    dice = random.Random(3)
    for _ in range(40):
        members = dice.randint(3, 9)
        rows = [
            tuple(sorted(dice.sample(range(members), dice.randint(1, 3)))) for _ in range(dice.randint(1, 9))
        ]
        p = dice.choice((0.01, 0.1, 0.4))
        sets = Counter((1,) * len(row) for row in set(rows))
        exact = exactly_lost(rows, members, p)
        assert exact <= any_lost(sets, Failures(1.0), window(p)) * (1 + 1e-9)
        # Some set alone is lost no oftener than any of them.
        assert exact >= max(p ** len(row) for row in rows) * (1 - 1e-9)


def test_a_group_that_fails_takes_all_its_members() -> None:
    failures = Failures(1.0, 2.0)
    span = 0.1
    p, g = failures.crash(span), failures.group_crash(span)
    assert set_lost((2,), failures, span) == pytest.approx(g + (1 - g) * p * p)
    assert set_lost((1, 1), failures, span) == pytest.approx((g + (1 - g) * p) ** 2)
    assert set_lost((2,), failures, span) > set_lost((1, 1), failures, span)
    assert any_lost({(): 1}, failures, span) == 1


def test_two_copies_are_lost_in_a_year_as_the_textbook_says() -> None:
    """Mean time to data loss of a mirrored pair: mtbf squared over twice the repair time, while that is short."""
    mtbf, repair = 90 * 86_400.0, 600.0
    losses = losses_a_year({(1, 1): 1}, Failures(mtbf), repair)
    assert losses == pytest.approx(YEAR_S / (mtbf**2 / (2 * repair)), rel=1e-3)
    assert losses_a_year({(1,): 5}, Failures(mtbf), repair) == pytest.approx(5 * YEAR_S / mtbf)
    assert in_a_year(losses) == pytest.approx(losses, rel=1e-3)
    # Three copies: 3 may be first, then 2, then 1; the windows of the later ones are not shorter.
    assert losses_a_year({(1, 1, 1): 1}, Failures(mtbf), repair) == pytest.approx(
        YEAR_S * 3 * repair**2 / mtbf**3, rel=1e-3
    )


def test_pairs_that_crash_at_random_are_lost_as_often_as_foretold() -> None:
    """Crashes drawn for a long time: each first one, and the other member within the window."""
    dice = random.Random(11)
    mtbf, repair, runs = 1.0, 0.05, 40_000
    lost = 0
    for _ in range(runs):
        # A first crash of either; then the partner, which has no memory, crashes within the window or not.
        lost += dice.expovariate(1 / mtbf) < repair
    firsts_a_second = 2 / mtbf
    drawn = lost / runs * firsts_a_second
    told = losses_a_year({(1, 1): 1}, Failures(mtbf), repair) / YEAR_S
    assert told == pytest.approx(drawn, rel=0.05)


def test_shapes_have_numbers_that_fit() -> None:
    assert len(set(SHAPES)) == len(SHAPES) <= 64
    assert (1, 1, 1) in SHAPES and () in SHAPES and (7,) in SHAPES


# -- blocks -----------------------------------------------------------------------------------------------------------


def figures(
    scenarios: list[str], strategy: str = "arrange", *, network: Network | None = None, **table: object
) -> tuple[Figures, ...]:
    """What all tasks find, one after the other, in this process."""
    question = ask(scenarios, **table)  # type: ignore[arg-type]
    hazards = Hazards(Failures(90 * 86_400.0))
    return foresee(question, [strategy], network or Network(1_000_000.0), hazards).figures


def test_a_table_of_one_block_is_what_the_master_would_do() -> None:
    here = [Candidate(f"m{number}", f"g{number % 3}") for number in range(7)]
    rows = arrange([(None,) * 3] * 200, here, 3)
    sizes = Sizes("uniform", 1_000, 9_000)
    now, after = figures(["join:2+drain:m3"], members=here, rows=rows, copies=3, sizes=sizes)
    candidates = [each for each in here if each.uuid != "m3"] + [
        Candidate("join-1", "g0"),
        Candidate("join-2", "g1"),
    ]
    present = {each.uuid for each in here} | {"join-1", "join-2"}
    fates = list(forecast(rows, present, candidates, 3))
    assert now.migrations == 0 and now.partitions == 200
    assert after.migrations == sum(len(each.plan.migrations) for each in fates)
    targets = [each.plan.target for each in fates]
    assert after.copies == moves(rows, targets) > 0
    owned = Counter(row[0] for row in targets)
    assert after.owned == (min(owned.values()), max(owned.values()))
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    for each in fates:
        for step, row in zip(each.plan.steps, each.plan.states(), strict=False):
            if getattr(step, "destination_current", 0) == -1:
                sent[str(row[0])] += sizes.of(each.partition)
                received[step.destination] += sizes.of(each.partition)  # type: ignore[union-attr]
    assert after.bytes == sum(sent.values())
    assert (after.sent_max, after.received_max) == (max(sent.values()), max(received.values()))
    assert after.seconds_least == pytest.approx(max(after.sent_max, after.received_max) / 1_000_000, rel=0.1)
    # Besides, one partition by itself: its copies, and four round trips for each of a few migrations.
    assert after.seconds_least < after.seconds_most <= 2.2 * after.seconds_least
    assert after.sets == len({frozenset(row) for row in targets})
    assert after.fewest == 3 and after.dips == 0


def test_blocks_hold_every_partition_once_and_stay_nearly_even() -> None:
    table = {"members": 20, "groups": 4, "partitions": 3_001, "copies": 3, "sizes": Sizes("fixed", 100)}
    whole = figures(["join:3"], block=5_000, **table)[1]
    parts = figures(["join:3"], block=400, **table)[1]
    assert whole.partitions == parts.partitions == 3_001
    assert sum(parts.lowest) == 3_001
    assert whole.held[1] - whole.held[0] <= 1
    # Each block is even by itself; who has one more than others is drawn anew in each of the 8.
    assert parts.held[1] - parts.held[0] <= 8
    assert parts.copies == pytest.approx(whole.copies, rel=0.05)


def test_a_zone_that_crashes_leaves_one_copy_less_and_a_second_one_loses_nothing() -> None:
    now, first, second = figures(
        ["crash-zone:g0,crash-zone:g1"],
        members=12,
        groups=4,
        partitions=500,
        copies=3,
        sizes=Sizes("fixed", 1),
    )
    assert now.fewest == 3
    assert (first.fewest, first.lost, first.members) == (2, 0, 9)
    assert (second.fewest, second.lost, second.members) == (2, 0, 6)
    assert first.loss_during > now.loss_during
    together = figures(
        ["crash-zone:3"], members=12, groups=4, partitions=500, copies=3, sizes=Sizes("fixed", 1)
    )[1]
    assert together.lost > 0 and together.fewest == 0 and together.loss_during == 1


def test_a_rolling_restart_ends_as_it_began_and_never_lacks_a_copy() -> None:
    told = figures(
        ["rolling-restart"], members=8, groups=4, partitions=400, copies=3, sizes=Sizes("fixed", 1)
    )
    assert len(told) == 1 + 2 * 4
    assert all(each.fewest == 3 and not each.lost for each in told)
    assert told[-1].members == 8 and told[-1].held == (150, 150)


def test_other_layouts_move_more_and_careless_steps_lose_copies() -> None:
    table = {
        "members": 10,
        "groups": 5,
        "partitions": 400,
        "copies": 3,
        "sizes": Sizes("fixed", 1),
        "orders": True,
    }
    ours = figures(["join:1"], **table)[1]
    modulo = figures(["join:1"], "modulo", **table)[1]
    rendezvous = figures(["join:1"], "rendezvous", **table)[1]
    assert ours.copies < rendezvous.copies < modulo.copies
    assert ours.held[1] - ours.held[0] <= 1 < rendezvous.held[1] - rendezvous.held[0]
    assert ours.fewest == 3 and ours.orders["careless"].fewest < 3
    assert ours.orders["careless"].dips > 0 == ours.dips


def test_rendezvous_is_the_placement_of_members_whatever_they_are_called_in_a_block() -> None:
    here = [Candidate(f"m{number}", f"g{number % 4}") for number in range(9)]
    rows = rendezvous(range(50), [(None,) * 3] * 50, here, 3)
    for block in (50, 20):
        question = ask(["join:1"], members=here, partitions=50, copies=3, block=block)
        for share in shares(question, ["rendezvous"], 2):
            walk = Walk(question, share, 0)
            own = {name: uuid for uuid, name in walk.name.items()}
            found = [tuple(own[name or ""] for name in row) for row in walk.first_rows()]
            assert found == [rows[partition] for partition in walk.partitions]


def test_of_a_running_cluster_with_rendezvous_the_plan_is_its_own() -> None:
    told = {"lite": False, "leaving": False, "master": False, "group": ""}
    members = [
        told | {"uuid": f"u{name}", "name": name, "consistent_id": name} for name in ("one", "two", "three")
    ]
    here = [Candidate(f"u{name}", "", name) for name in ("one", "two", "three")]
    kind = {"replicas": 2, "holders": 2, "lost": "wait", "placement": "rendezvous"}
    rows = rendezvous(range(40), [()] * 40, here, 2)
    cluster = LiveCluster(status(members=members, partitions=kind), rows)
    assert cluster.strategy == "rendezvous"
    for event in ("drain", "crash"):
        question = cluster.question([f"{event}:one"])
        ((_, _, fates),) = [(*one, list(found)) for *one, found in outlooks(question, cluster.strategy)]
        wanted = [one for one in here if one.uuid != "uone"]
        assert [each.plan.target[: len(wanted)] for each in fates] == rendezvous(range(40), rows, wanted, 2)
    assert LiveCluster(status(members=members), rows).strategy == "arrange"


def test_lost_partitions_wait_also_with_other_layouts() -> None:
    rows: list[ReplicaList] = [("m0", "m1"), ("m1", "m2"), ("m2", "m3"), ("m3", "m0")]
    here = [Candidate(f"m{number}") for number in range(4)]
    for strategy in ("arrange", "modulo", "rendezvous"):
        told = figures(["crash:2"], strategy, members=here, rows=rows, copies=2)[1]
        assert (told.lost, told.partitions) == (1, 4)
        assert told.lowest[:3] == [1, 2, 1]


def test_every_migration_is_told_with_its_own_names() -> None:
    question = ask(["join:1"], members=5, partitions=90, copies=2, block=20)
    pytest.importorskip("pyspark")
    from holdfast.spark.pipeline.forecast_job import moves_of

    told = [
        row
        for share in shares(question, ["arrange"], 2)
        for batch in moves_of(question, share)
        for row in batch.to_pylist()
    ]
    summary = figures(["join:1"], members=5, partitions=90, copies=2, block=20)[1]
    assert len(told) == summary.migrations
    assert {row["destination"] for row in told} == {"join-1"}
    assert {row["owner"] for row in told} <= {f"m{number:05d}" for number in range(5)} | {"join-1"}
    assert sum(row["bytes"] for row in told) == summary.bytes


def test_wrong_questions_are_refused() -> None:
    for wrong in ({"copies": 0}, {"copies": 8}, {"members": 0}, {"members": 2, "groups": 3}, {"block": 0}):
        with pytest.raises(ConfigError):
            ask(["join:1"], **{"members": 3, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        ask([], members=3)
    with pytest.raises(ConfigError):
        foresee(ask(["join:1"], members=3), ["best"])
    with pytest.raises(ConfigError, match="too much"):
        ask(["join:1"], members=3, partitions=1000, sizes=parse_sizes("1e18"))


def test_the_network_bounds_what_a_member_can_send() -> None:
    # 10 pieces of 64 KiB in each 10 ms are less than the line carries.
    slow = Network(1e9, 10, 65_536, 0.01)
    assert slow.rate == pytest.approx(65_536_000)
    assert slow.busy(65_536_000, 0) == pytest.approx(1)
    assert slow.busy(0, 1000) == pytest.approx(4 * 0.01 * 100)
    shapes: dict[Shape, int] = {(1, 1): 1}
    assert any_lost(shapes, Failures(1e9), 1.0) < 1e-15


GIB = 1 << 30
WIDE = Network(1_250_000_000.0)
"""10 Gbit, 10 at a time, pieces of 64 KiB, 1 ms."""


def test_one_partition_by_itself_is_no_quicker_than_its_own_window() -> None:
    """A piece in each round trip: one partition does not use what ten at a time would."""
    alone_s = GIB / WIDE.chunk_bytes * 0.001
    table = {"members": 3, "partitions": 1, "copies": 1, "sizes": Sizes("fixed", GIB), "network": WIDE}
    now, after = figures(["drain:1+join:1"], **table)
    told = after if after.copies else figures(["drain:2"], **table)[1]
    assert (told.copies, told.migrations) == (1, 1)
    assert alone_s + 4 * 0.001 == pytest.approx(told.seconds_least)
    assert told.seconds_most >= told.seconds_least
    assert now.seconds_least == now.seconds_most == 0
    # A crash is made up for by one such copy, too.
    assert now.repair_s >= 10 + alone_s


def test_a_large_partition_among_small_ones_decides_in_whatever_block_it_is() -> None:
    sizes = Sizes("measured", measured=(1_000,) * 99 + (GIB,))
    table = {"members": 2, "partitions": 100, "copies": 1, "sizes": sizes, "network": WIDE}
    for block in (1_000, 7):
        # Three copies of each are to be made: one after the other, of the large one as well.
        told = figures(["join:2"], **{**table, "members": 1, "copies": 3}, block=block)[1]
        assert told.seconds_least == pytest.approx(2 * (GIB / WIDE.chunk_bytes + 4) * 0.001)
        assert told.seconds_most > told.seconds_least


def test_slots_are_taken_for_the_round_trips_and_the_content_of_a_migration() -> None:
    network = Network(1e12, 10, 65_536, 0.001)
    assert network.busy(655_360, 100) == pytest.approx((10 + 4 * 100) * 0.001 / 10)
    assert network.alone(655_360, 2) == pytest.approx((10 + 4 * 2) * 0.001)
    assert Network(1000.0, round_trip_s=0).alone(5000, 3) == 0
