"""`holdfast plan`: what it takes, what it shows, and what it says to bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests import statuses
from tests.core.placement.test_every_table import COUNTS

from holdfast.cli.main import holdfast
from holdfast.core.model.migration import MigrationKind
from holdfast.core.placement.affinity import rendezvous
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.planner import plan
from holdfast.errors import NotReady
from holdfast.planning import live_cluster
from holdfast.planning.live_cluster import LiveCluster

KEYS = [
    "type",
    "partition",
    "source",
    "sourceCurrentReplicaIndex",
    "sourceNewReplicaIndex",
    "destination",
    "destinationCurrentReplicaIndex",
    "destinationNewReplicaIndex",
    "versionIncrement",
]


def run(*arguments: str, given: object = None) -> Result:
    text = given if isinstance(given, str | bytes) else json.dumps(given)
    return CliRunner().invoke(holdfast, ["plan", *arguments], input=text, catch_exceptions=False)


def data(given: object, *arguments: str) -> list[dict[str, Any]]:
    told = run("--json", *arguments, given=given)
    assert told.exit_code == 0, told.output
    return [json.loads(line) for line in told.stdout.splitlines()]


def row(text: str) -> list[str | None]:
    return [None if name == "-" else name for name in text]


def tables(*pairs: tuple[str, str]) -> dict[str, object]:
    return {"current": [row(before) for before, _ in pairs], "target": [row(after) for _, after in pairs]}


SOURCE = [
    # 001 §3.2.2, the examples of the ordering
    ("ABC", "DBC", ["MOVE A 0 -1 D -1 0 +1"], ["ABC", "DBC"]),
    ("A-C", "ADC", ["COPY - -1 -1 D -1 1 +1"], ["A-C", "ADC"]),
    ("A-C", "DAC", ["SHIFT DOWN A 0 1 D -1 0 +2"], ["A-C", "DAC"]),
    (
        "A-BC",
        "ABC-",
        ["SHIFT UP - -1 -1 B 2 1 +2", "SHIFT UP - -1 -1 C 3 2 +2"],
        ["A-BC", "AB-C", "ABC-"],
    ),
    (
        "ABCD",
        "ACDE",
        ["MOVE D 3 -1 E -1 3 +1", "MOVE C 2 -1 D -1 2 +1", "MOVE B 1 -1 C -1 1 +1"],
        ["ABCD", "ABCE", "ABDE", "ACDE"],
    ),
    ("ABCD", "BDC-", ["SHIFT UP B 1 -1 D 3 1 +2", "MOVE A 0 -1 B -1 0 +1"], ["ABCD", "ADC-", "BDC-"]),
    # §3.1.3.2 SHIFT DOWN case 2, §3.1.4.2 SHIFT UP case 2, §3.2.1 the cycle
    ("ABC", "DAC", ["MOVE A 0 -1 D -1 0 +1", "MOVE B 1 -1 A -1 1 +1"], ["ABC", "DBC", "DAC"]),
    ("ABC", "ACD", ["MOVE C 2 -1 D -1 2 +1", "MOVE B 1 -1 C -1 1 +1"], ["ABC", "ABD", "ACD"]),
    ("ABC", "CAB", [], ["ABC"]),
]


@pytest.mark.parametrize(("before", "after", "migrations", "states"), SOURCE)
def test_the_examples_of_the_source(
    before: str, after: str, migrations: list[str], states: list[str]
) -> None:
    (found,) = data(tables((before, after)))
    assert all(list(step) == KEYS for step in found["migrations"])
    told = [
        " ".join("-" if value is None else str(value) for key, value in step.items() if key != "partition")
        for step in found["migrations"]
    ]
    assert [text.rpartition(" ")[0] + f" +{text.rpartition(' ')[2]}" for text in told] == migrations
    assert ["".join(owner or "-" for owner in state) for state in found["intermediateStates"]] == states
    assert found["versionIncrement"] == sum(step["versionIncrement"] for step in found["migrations"])
    cycles = found["cancelledCycles"]
    if after == "CAB":
        assert [[(each["member"], each["targetReplicaIndex"]) for each in cycle] for cycle in cycles] == [
            [("A", 1), ("B", 2), ("C", 0)]
        ]
    else:
        assert cycles == []
    assert (found["notMade"], found["clearedSlots"], found["lost"]) == ([], [], False)


def test_all_in_one_file_is_one_object_for_each_partition(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    wide = [(before.ljust(4, "-"), after.ljust(4, "-")) for before, after, _, _ in SOURCE]
    file.write_text(json.dumps(tables(*wide)))
    found = data("", str(file))
    assert [each["partition"] for each in found] == list(range(9))
    assert all(step["partition"] == each["partition"] for each in found for step in each["migrations"])
    assert found == data(file.read_text()) == data(file.read_text(), "-")


def test_people_get_a_timeline() -> None:
    told = run(
        given=tables(
            ("ABCD", "BDC-"),
            ("ABCD", "ABCD"),
            ("ABCD", "ABCD"),
            ("-BC-", "DBC-"),
            ("ABC-", "CABD"),
            ("A-BC", "AB--"),
            ("----", "A---"),
        )
    )
    assert told.exit_code == 0
    assert (
        told.stdout
        == """\
partition 0: 2 migrations, version +3
  now         A  B  C  D
  SHIFT UP    A  D  C  -   D from 3 to 1 for B, which leaves; version +2
  MOVE        B  D  C  -   B to 0 for A, which leaves; version +1

partitions 1 to 2: nothing to do

partition 3: 1 migration, version +4
  now         -  B  C  -
  PROMOTE     B  -  C  -   B from 1 to 0; version +2
  SHIFT DOWN  D  B  C  -   D to 0 for B, which goes to 1; version +2

partition 4: 1 migration, version +1
  now         A  B  C  -
  COPY        A  B  C  D   D to 3; version +1
  cancelled   a cycle, so all stay: A from 0 to 1, B from 1 to 2, C from 2 to 0

partition 5: 1 migration, version +3
  now         A  -  B  C
  SHIFT UP    A  B  -  C   B from 2 to 1; version +2
  CLEAR       A  B  -  -   C leaves 3; version +1

partition 6: 0 migrations, version +0
  now         -  -  -  -
  LOST        no member holds it: nothing to copy from, no migrations

"""
    )


def test_the_promotion_is_a_step_of_its_own() -> None:
    (found,) = data(tables(("--BC", "DBC-")))
    assert list(found["promotion"].values()) == ["PROMOTE", 0, None, -1, -1, "B", 2, 0, 2]
    assert list(found["promotion"]) == KEYS
    assert [step["type"] for step in found["migrations"]] == ["SHIFT DOWN", "SHIFT UP"]
    assert found["intermediateStates"] == [row(text) for text in ("--BC", "B--C", "DB-C", "DBC-")]
    assert data(tables(("AB", "AC")))[0]["promotion"] is None


def test_the_target_is_what_the_master_would_compute() -> None:
    rows = arrange([()] * 20, [Candidate("a"), Candidate("b")], 2)
    zones = {"a": "x", "b": "y", "c": "y"}
    given = {
        "current": rows,
        "members": ["a", "b", "c", "d", "e"],
        "backups": 1,
        "groups": zones,
        "leaving": ["b"],
        "lite": ["e"],
    }
    candidates = [Candidate("a", "x"), Candidate("c", "y"), Candidate("d")]
    wanted = arrange(rows, candidates, 2)
    found = data(given)
    assert [tuple(each["target"]) for each in found] == wanted
    for partition, each in enumerate(found):
        planned = plan(partition, rows[partition], wanted[partition])
        assert [tuple(state) for state in each["intermediateStates"]] == list(planned.states())
        assert len(each["migrations"]) == len(planned.migrations)
    assert not {owner for each in found for owner in each["target"]} & {"b", "e"}


def test_members_that_are_not_named_any_more_count_as_crashed_and_are_reported() -> None:
    given = {"current": [["A", "B"], ["B", "A"], ["B", "X"]], "members": ["A", "C"], "backups": 1}
    told = run("--json", given=given)
    assert told.stderr.splitlines() == [
        "Note: B is in 3 rows of current but not in members: taken as crashed",
        "Note: X is in 1 row of current but not in members: taken as crashed",
    ]
    first, second, third = map(json.loads, told.stdout.splitlines())
    assert (first["gone"], first["promotion"], first["current"]) == (["B"], None, ["A", "B"])
    assert (second["gone"], second["promotion"]["destination"]) == (["B"], "A")
    assert second["intermediateStates"][:2] == [[None, "A"], ["A", None]]
    assert (third["gone"], third["lost"], third["migrations"]) == (["B", "X"], True, [])
    assert "gone: B, X" in run(given=given).stdout
    assert "LOST" in run(given=given).stdout


def test_a_summary_has_the_figures_of_all() -> None:
    given = tables(("ABCD", "BDC-"), ("ABC-", "CABD"), ("----", "A---"), ("-BC-", "DBC-"), ("ABCD", "ABCD"))
    told = run("--summary", given=given)
    for line in (
        "4 migrations in 3 partitions (1 SHIFT UP, 1 MOVE, 1 COPY, 1 SHIFT DOWN), 3 of them with 192.0 MiB",
        "192.0 MiB; 1 promotions",
        "1 partitions lost: 2; 1 cycles cancelled, 0 slots not made, 0 cleared; version +8",
        "A          3        2          3        2",
    ):
        assert line in told.stdout
    now, total = data(given, "--summary")
    assert (now["step"], now["text"], now["migrations"]) == (-1, "as it is", 0)
    assert total["kinds"] == {"MOVE": 1, "COPY": 1, "SHIFT DOWN": 1, "SHIFT UP": 1}
    assert (total["partitions"], total["changed"], total["migrations"], total["copies"]) == (5, 3, 4, 3)
    assert (total["increment"], total["lost_partitions"]) == (3 + 1 + 4, [2])
    of_d = [next(each for each in one["loads"] if each["member"] == "D") for one in (now, total)]
    assert [(each["owned"], each["replicas"]) for each in of_d] == [(0, 2), (1, 4)]


def test_a_scenario_changes_members_and_settings_of_a_file() -> None:
    given = {"current": [["A", "B"], ["B", "A"]], "members": ["A", "B"], "backups": 1}
    found = data(given, "--scenario", "crash:A,join:C+backups:0")
    assert [each["partition"] for each in found] == [0, 1, 0, 1]
    assert {owner for each in found[:2] for owner in each["intermediateStates"][-1]} == {"B", None}
    last = [each["intermediateStates"][-1] for each in found[2:]]
    assert all(row[1:] == [None] * (len(row) - 1) for row in last), "no backups"
    assert sorted(row[0] for row in last) == ["B", "join-1"]
    ranked = data(given, "--scenario", "placement:rendezvous")
    assert [tuple(each["target"]) for each in ranked] == rendezvous(
        range(2), [()] * 2, [Candidate("A"), Candidate("B")], 2
    )
    wrong = run("--scenario", "join:1", given=tables(("AB", "BA")))
    assert (wrong.exit_code, "--scenario and target are given" in wrong.stderr) == (2, True)


def test_numbers_are_planned_without_spark() -> None:
    told = run("--members", "6", "--groups", "3", "--partitions", "90", "--scenario", "crash-zone", "--json")
    now, after = map(json.loads, told.stdout.splitlines())
    assert (now["members"], after["members"], after["fewest"], after["lost"]) == (6, 4, 2, 0)
    assert sum(each["replicas"] for each in after["loads"]) == 3 * 90 - 90, "two groups are left"


# -- bad input

AB = [["A", "B"]]
BAD = {
    "empty": ("", "standard input: it is empty: write JSON such as"),
    "blank": (" \n", "it is empty"),
    "not json": ('{"current":\n [["A" "B"]]}', "line 2, column 8 is not JSON: "),
    "cut off": ('{"current": [["A"', "line 1, column 18 is not JSON: "),
    "not utf-8": (b'{"current": [["\xff"]]}', "byte 15 is not UTF-8 text"),
    "too deep": ("[" * 200_000, "nested too deeply"),
    "a huge number": ("[" + "9" * 5000 + "]", "a number in it is too long"),
    "an array": ([], "it holds an array, not an object: write JSON such as"),
    "a number": (7, "it holds a number, not an object"),
    "a key twice": ('{"current": [], "current": []}', "the key 'current' is there twice"),
    "no current": ({"target": AB}, "current is missing"),
    "neither": ({"current": AB}, "members is missing: give the target, or members and backups"),
    "no backups": ({"current": AB, "members": ["A"]}, "backups is missing"),
    "both": ({"current": AB, "target": AB, "members": ["A"]}, "both target and members are given"),
    "both backups": ({"current": AB, "target": AB, "backups": 1}, "both target and backups are given"),
    "unknown key": (
        {"current": AB, "membres": ["A"], "backups": 1},
        "the key 'membres' is unknown: did you mean members?",
    ),
    "unknown key with target": (
        {"current": AB, "target": AB, "zzz": 1},
        "the key 'zzz' is unknown: the keys are current, target, members",
    ),
    "rows no array": ({"current": {"0": []}, "target": AB}, "current is an object: give an array of rows"),
    "no rows": ({"current": [], "target": []}, "current is empty: give one row for each partition"),
    "row no array": ({"current": ["AB"], "target": AB}, "current row 0 is a text: a row is an array"),
    "ragged": (
        {"current": [["A", "B"], ["A"]], "target": AB},
        "current row 1 has 1 slot, but row 0 has 2 slots: fill the shorter rows up with null",
    ),
    "ragged target": (
        {"current": AB, "target": [["A"], ["A", "B"]]},
        "target row 1 has 2 slots, but row 0 has 1",
    ),
    "counts differ": ({"current": AB, "target": AB * 3}, "target has 3 rows, but current has 1"),
    "no slot": ({"current": [[]], "target": AB}, "current row 0 has 0 slots: a partition has 1 to 7"),
    "eight slots": (
        {"current": [list("ABCDEFGH")], "target": AB},
        "current row 0 has 8 slots: a partition has 1",
    ),
    "twice": (
        {"current": AB, "target": [["B", "B"]]},
        "target row 0 names 'B' twice, in slots 0 and 1: a member holds a partition once",
    ),
    "number as member": (
        {"current": [["A", 5]], "target": AB},
        "current row 0, slot 1 is 5: a member's name is",
    ),
    "empty name": (
        {"current": [["A", ""]], "target": AB},
        'current row 0, slot 1 is "": a member\'s name is',
    ),
    "control characters": ({"current": [["\x1b[2J", "A"]], "target": AB}, 'slot 0 is "\\u001b[2J": a member'),
    "target without owner": (
        {"current": AB, "target": [[None, "A"]]},
        "target row 0 has no owner: slot 0 is null, but slot 1 is not",
    ),
    "members no array": ({"current": AB, "members": "A", "backups": 1}, "members is a text: give an array"),
    "no members": ({"current": AB, "members": [], "backups": 1}, "members is empty"),
    "member twice": ({"current": AB, "members": ["A", "A"], "backups": 1}, "members names 'A' twice"),
    "member no text": ({"current": AB, "members": ["A", None], "backups": 1}, "members, entry 1 is null"),
    "backups too many": (
        {"current": AB, "members": ["A"], "backups": 7},
        "backups is 7: give a number from 0 to 6",
    ),
    "backups no number": (
        {"current": AB, "members": ["A"], "backups": True},
        "backups is true: give a number",
    ),
    "groups no object": (
        {"current": AB, "members": ["A"], "backups": 1, "groups": ["x"]},
        "groups is an array: give an object of member and group",
    ),
    "group no text": (
        {"current": AB, "members": ["A"], "backups": 1, "groups": {"A": 1}},
        "groups gives 'A' the group 1: a group is a text",
    ),
    "group of nobody": (
        {"current": AB, "members": ["A"], "backups": 1, "groups": {"Z": "x"}},
        "groups names 'Z', which is not in members",
    ),
    "leaver unknown": (
        {"current": AB, "members": ["A"], "backups": 1, "leaving": ["Z"]},
        "leaving and lite names 'Z', which is not in members",
    ),
    "nobody stays": (
        {"current": AB, "members": ["A", "B"], "backups": 1, "leaving": ["A"], "lite": ["B"]},
        "every member is leaving or lite",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_the_place_and_what_to_do(case: str) -> None:
    given, message = BAD[case]
    told = run(given=given)
    assert told.exit_code == 2
    assert told.stdout == ""
    assert told.stderr.startswith("Error: standard input: ")
    assert message in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text("{")
    assert f"{file}: line 1, column 2 is not JSON" in run(str(file)).stderr
    told = run(str(tmp_path / "none.json"))
    assert (told.exit_code, told.stderr) == (
        2,
        f"Error: cannot read {tmp_path}/none.json: No such file or directory\n",
    )
    assert "Is a directory" in run(str(tmp_path)).stderr


def test_a_byte_order_mark_does_no_harm() -> None:
    assert data(b"\xef\xbb\xbf" + json.dumps(tables(("AB", "AC"))).encode())[0]["partition"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table.json", "--live"], "FILE, --live and --members exclude each other"),
        (["--members", "3", "--live"], "exclude each other"),
        (["--members", "3", "--scenario", "join:0"], "join:0 is not allowed"),
        (["--members", "3", "--scenario", "explode"], "is not known"),
        (["--members", "3", "--to", "folder"], "need --spark"),
        (["--live", "-a", "nonsense:x"], "must be HOST:PORT"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], message: str) -> None:
    told = run(*arguments)
    assert told.exit_code == 2
    assert message in told.stderr


def test_a_cluster_that_does_not_answer() -> None:
    told = run("--live", "-a", "127.0.0.1:1")
    assert told.exit_code == 4
    assert told.stderr.startswith("Error: no member answers")
    assert len(told.stderr.splitlines()) == 1


# -- a large table, and a reader that has seen enough


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_output_comes_as_it_is_planned_and_may_be_cut_off(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    file.write_text(json.dumps(tables(*[("ABC", "BDE")] * 20_000)))
    code = "from holdfast.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "plan", str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout
    assert process.stderr
    first = process.stdout.readline()
    assert b"partition" in first
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    process.wait(60)
    assert told == b""


# -- a cluster, without one


def member(uuid: str, **changes: object) -> dict[str, object]:
    return {
        "uuid": uuid,
        "name": f"name-{uuid[0]}",
        "host": "127.0.0.1",
        "client_port": 5701,
        "lite": False,
        "group": "",
        "leaving": False,
        "master": uuid == "aaaa1",
    } | changes


def cluster(**changes: object) -> LiveCluster:
    """Three members, as the master tells."""
    members = [member("aaaa1"), member("bbbb2"), member("cccc3")]
    rows = arrange([()] * 12, [Candidate(str(each["uuid"])) for each in members], 2)
    status: dict[str, Any] = {
        "cluster": "dev",
        "is_master": True,
        "quorum": "majority",
        "members": members,
        "table": {"version": 24, "stamp": "00"},
        "partitions": {"count": 12, "replicas": 2, "holders": 2, "lost": "wait"},
        "migrations": {"active": 0, "queued": 0},
    }
    return LiveCluster(statuses.status(status, **changes), rows)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a cluster answer."""

    def answer(**changes: object) -> None:
        monkeypatch.setattr(live_cluster, "_ask", lambda *_: cluster(**changes))

    return answer


Tell = Callable[..., None]


def test_live_names_members_as_people_do_and_by_uuid_for_machines(told: Tell) -> None:
    told()
    shown = run("--live", "--scenario", "drain:name-b+crash:cccc").stdout
    assert (
        shown.splitlines()[0] == "cluster dev, table version 24; assumed: name-b is drained, name-c crashes"
    )
    assert "aaaa1" not in shown
    lines = run("--live", "--json", "--scenario", "join:2").stdout.splitlines()
    owners = {json.loads(line)["intermediateStates"][-1][0] for line in lines}
    assert owners == {"aaaa1", "bbbb2", "cccc3", "join-1", "join-2"}


def test_live_takes_the_beginning_of_a_uuid_for_no_count(told: Tell) -> None:
    told(members=[member("aaaa1"), member("21022114-b"), member("cccc3")])
    shown = run("--live", "--scenario", "drain:21022114").stdout
    assert "assumed: name-2 is drained" in shown
    assert "is drained" in run("--live", "--scenario", "drain:1").stdout
    assert "there are only 3 members" in run("--live", "--scenario", "drain:31022114").output


def test_live_without_any_event_is_what_the_master_has_to_do_now(told: Tell) -> None:
    told()
    shown = run("--live", "-a", "127.0.0.1:5701")
    assert shown.stdout.splitlines()[2] == "partitions 0 to 11: nothing to do"
    assert shown.stderr == ""
    told(members=[member("aaaa1"), member("bbbb2", leaving=True), member("cccc3")])
    assert all(
        "bbbb2" not in json.loads(line)["intermediateStates"][-1]
        for line in run("--live", "--json").stdout.splitlines()
    )


RANKED = {"count": 12, "replicas": 2, "holders": 2, "lost": "wait", "placement": "rendezvous"}


def test_live_plans_by_the_placement_of_the_cluster(told: Tell) -> None:
    """Members are ranked by the consistent ids that the cluster tells, and new ones by the names that are given."""
    called = {"aaaa1": "one", "bbbb2": "two", "cccc3": "three"}
    told(partitions=RANKED, members=[member(uuid, consistent_id=name) for uuid, name in called.items()])
    shown = run("--live", "--json", "--scenario", "join:four+join:five")
    assert "Note: events joined by + happen at once" in shown.stderr
    assert "depends on its name" not in shown.stderr
    here = [
        Candidate(uuid, "", name) for uuid, name in [*called.items(), ("join-1", "four"), ("join-2", "five")]
    ]
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [tuple(each["target"]) for each in lines] == rendezvous(range(12), [()] * 12, here, 2)
    assert "give it as join:NAME" in run("--live", "--scenario", "join:1").stderr
    told()
    assert "join:NAME" not in run("--live", "--scenario", "join:1").stderr, "even does not look at names"


def test_a_file_may_ask_for_rows_by_rendezvous() -> None:
    given = {"current": [["A", "B"], ["B", "A"], ["A", "B"]], "members": list("ABC"), "backups": 1}
    here = [Candidate(name) for name in "ABC"]
    told = data(given | {"placement": "rendezvous"})
    assert [tuple(each["target"]) for each in told] == rendezvous(range(3), [()] * 3, here, 2)
    assert data(given | {"placement": "even"}) == data(given)
    wrong = run(given=given | {"placement": "best"})
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert 'placement is "best": give even or rendezvous' in wrong.stderr


def test_live_keeps_groups_apart_and_lite_members_empty(told: Tell) -> None:
    told(members=[member("aaaa1", group="x"), member("bbbb2", group="y"), member("cccc3", lite=True)])
    for line in run("--live", "--json", "--scenario", "join:1@x").stdout.splitlines():
        final = json.loads(line)["intermediateStates"][-1]
        assert {"x" if owner in ("aaaa1", "join-1") else owner for owner in final} == {"x", "bbbb2"}
    spread = run("--live", "--json", "--scenario", "join:1").stdout.splitlines()
    assert any("join-1" in json.loads(line)["intermediateStates"][-1] for line in spread), (
        "in the first group"
    )


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("drain:nobody", "'nobody' is no member: name-a aaaa1, name-b bbbb2, name-c cccc3"),
        ("crash:aaa", "'aaa' is no member"),
        ("crash:name-a+drain:aaaa1", "aaaa1 cannot both crash and be drained"),
        ("join:@x", "give join:N, join:NAME or join:N@GROUP"),
        ("crash:name-a+crash:name-b+crash:name-c", "no member would be left"),
        ("backups:7", "give a number from 0 to 6"),
        ("placement:best", "give even or rendezvous"),
    ],
)
def test_live_refuses_what_makes_no_sense(told: Tell, scenario: str, message: str) -> None:
    told()
    shown = run("--live", "--scenario", scenario)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert message in shown.stderr


def test_live_says_when_a_name_is_not_enough(told: Tell) -> None:
    told(members=[member("aaaa1"), member("bbbb2", name="same"), member("bbbb3", name="same")])
    assert (
        "'same' names several members: same bbbb2, same bbbb3"
        in run("--live", "--scenario", "crash:same").stderr
    )
    assert "'bbbb' names several members" in run("--live", "--scenario", "crash:bbbb").stderr
    assert run("--live", "--scenario", "crash:bbbb2").exit_code == 0


def test_live_warns_of_what_the_plan_does_not_show(told: Tell) -> None:
    told(migrations={"active": 2, "queued": 3})
    assert "Note: 5 migrations are under way" in run("--live").stderr
    told()
    shown = run("--live", "--scenario", "crash:name-a+crash:name-b").stderr
    assert "no majority" in shown
    assert "at once" in shown
    told(quorum="any")
    assert "no majority" not in run("--live", "--scenario", "crash:name-a+crash:name-b").stderr


def test_live_says_that_partitions_wait_or_begin_anew(told: Tell) -> None:
    told()
    assert (
        "LOST        no member holds it: nothing"
        in run("--live", "--scenario", "crash:name-a+crash:name-b").stdout
    )
    told(partitions={"replicas": 2, "holders": 2, "lost": "accept"})
    shown = run("--live", "--scenario", "crash:name-a+crash:name-b").stdout
    assert "EMPTY       name-c" in shown
    assert "restarts empty on name-c" in shown


def test_live_asks_the_master_or_says_that_it_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(address: str, *_: object) -> LiveCluster:
        asked.append(address)
        if address == "127.0.0.1:5701" and deaf:
            raise NotReady("no answer")
        return cluster(is_master=address == "127.0.0.1:5701")

    asked: list[str] = []
    monkeypatch.setattr(live_cluster, "_ask", ask)
    deaf = False
    assert run("--live", "-a", "127.0.0.1:5709").stderr == ""
    assert asked == ["127.0.0.1:5709", "127.0.0.1:5701"]
    deaf = True
    assert "the master does not answer (no answer)" in run("--live", "-a", "127.0.0.1:5709").stderr


# -- what is written about it

PAGE = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return [text.partition("```")[0] for text in PAGE.split(f"```{kind}\n")[1:]]


def test_the_examples_of_the_page_are_true() -> None:
    example, with_members = blocks("json")
    assert run(given=example).stdout.rstrip() == blocks("text")[0].rstrip()
    found = data(with_members)
    assert [each["gone"] for each in found] == [["B"], ["B"]]
    assert not any({"A", "C"} <= set(each["target"]) for each in found), "one of each rack"


def test_the_page_names_every_key_and_every_step() -> None:
    (found,) = data(tables(("ABC", "CAB")))
    for key in [*found, *KEYS, *found["cancelledCycles"][0][0], "replicaIndex", "wanted", "stays"]:
        assert f"`{key}`" in PAGE, key
    for kind in [*MigrationKind, "PROMOTE", "CLEAR", "EMPTY", "LOST"]:
        assert kind in PAGE


def test_the_counts_of_the_proof_are_those_of_the_test() -> None:
    total = tuple(map(sum, zip(*COUNTS.values(), strict=True)))
    for slots, (families, named, same, left_out) in {**COUNTS, "all": total}.items():
        assert f"| {slots} | {named:,} | {families:,} | {same:,} | {left_out} |" in PAGE


def test_help_has_examples_as_they_are_typed() -> None:
    told = run("--help").output
    assert "\\b" not in told
    assert "\n    holdfast plan --live --scenario join:1 --summary\n" in told


# -- a zone in a file


def shown_zone(**changed: object) -> dict[str, object]:
    """As `holdfast zone show z --json` describes a zone of two partitions on three members."""
    zone = {
        "id": 1,
        "name": "z",
        "settings": {"partitions": 2, "replicas": 2, "filter": "", "scale_up_s": 0, "scale_down_s": 300},
        "data_nodes": ["a", "b", "c"],
        "eligible_members": ["one", "two", "three"],
        "leaderless": 0,
        "moving": 0,
        "under_replicated": 0,
        "lag": 0,
    }
    partitions = [
        {
            "partition": number,
            "stable": {"peers": peers, "learners": []},
            "pending": [],
            "planned": None,
            "leader": peers[0],
            "term": 1,
            "replicas": [],
        }
        for number, peers in enumerate((["a", "b"], ["b", "c"]))
    ]
    members = {"a": "one", "b": "two", "c": "three"}
    return {"zone": zone, "members": members, "partitions": partitions, **changed}


def test_a_zone_in_a_file_is_planned() -> None:
    told = run("-", "--zone", "z", "--scenario", "drain:one", "--json", given=shown_zone())
    (plan,) = [json.loads(line) for line in told.stdout.splitlines()]
    assert [move["partition"] for move in plan["moves"]] == [0]
    assert (plan["copied"], plan["removed"], plan["no_majority"]) == (1, 1, [])
    assert "one" in run("-", "--zone", "z", "--scenario", "crash:one", given=shown_zone()).stdout


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"partitions": []}, "a zone with 2 partitions"),
        ({"members": 7}, "must be from holdfast zone show z --json"),
        ({"zone": {**shown_zone()["zone"], "name": "y"}}, "has the zone y, not z"),  # type: ignore[dict-item]
        ({"zone": {**shown_zone()["zone"], "settings": {"partitions": "x"}}}, "must be from holdfast zone"),  # type: ignore[dict-item]
    ],
)
def test_a_file_that_describes_no_such_zone_is_rejected(changed: dict[str, object], why: str) -> None:
    told = run("-", "--zone", "z", given=shown_zone(**changed))
    assert told.exit_code == 2
    assert why in " ".join(told.output.split())


# -- a move of a map in a file


def test_a_move_is_planned_from_the_output_of_zone_show() -> None:
    told = run(
        "-",
        "--move",
        "orders",
        "--zone",
        "z",
        "--size",
        "1MiB",
        "--copies",
        "2",
        "--json",
        given=shown_zone(),
    )
    found = json.loads(told.stdout)
    assert (found["map"], found["source"], found["target"]) == ("orders", "", "z")
    figures = found["figures"]
    assert (figures["partitions"], figures["bytes"], figures["replicas_before"]) == (2, 2 << 20, 2)
    assert sum(flow["bytes"] for flow in figures["flows"]) == 2 << 20
    text = run("-", "--move", "orders", "--zone", "z", given=shown_zone()).stdout
    assert "map orders: from the partitions with a primary to zone z" in text
    back = json.loads(run("-", "--move", "orders", "--no-zone", "--json", given=shown_zone()).stdout)
    assert (back["source"], back["target"]) == ("z", "")


def test_a_move_is_planned_with_the_rows_of_the_partitions() -> None:
    given = {"zone": shown_zone(), "current": [["one"], ["two"], ["three"], [None, "one"]], "entries": 9}
    found = json.loads(run("-", "--move", "orders", "--zone", "z", "--json", given=given).stdout)["figures"]
    assert (found["partitions"], found["entries"], found["replicas_before"]) == (4, 9, 1)


@pytest.mark.parametrize(
    ("arguments", "given", "why"),
    [
        (("--move", "m"), shown_zone(), "--move MAP --zone ZONE"),
        (("--no-zone",), shown_zone(), "--move MAP --zone ZONE"),
        (("--move", "m", "--zone", "z", "--no-zone"), shown_zone(), "--move MAP --zone ZONE"),
        (("--move", "m", "--zone", "z", "--scenario", "now"), shown_zone(), "--move is without"),
        (("--move", "m", "--zone", "y"), shown_zone(), "has the zone z, not y"),
        (("--move", "m", "--zone", "z"), {"zone": 7}, "must be from holdfast zone show NAME --json"),
        (("--move", "m", "--zone", "z"), shown_zone(partitions=[]), "no map can live in it"),
    ],
)
def test_a_move_that_cannot_be_planned_is_rejected(
    arguments: tuple[str, ...], given: object, why: str
) -> None:
    told = run("-", *arguments, given=given)
    assert told.exit_code == 2
    assert why in told.stderr
