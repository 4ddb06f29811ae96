"""Every status of every command: what the table of `holdfast.cli.exit_statuses` says is what commands do."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.command_lines import group_of
from tests.json_answers import check, path_of
from tests.server.memory_cluster import MemoryCluster, MemoryMember

from holdfast.actions.list_transactions import ListTransactions, Topology, TransactionList, TransactionState
from holdfast.actions.operator_action import ActionDone, OperatorAction, OperatorQuery
from holdfast.actions.registry import ACTIONS
from holdfast.actions.show_status import ShowStatus
from holdfast.cli.action_commands import ACTION_STATUSES
from holdfast.cli.exit_statuses import (
    ALIASES,
    BROKEN,
    DONE,
    FAILED,
    GENERAL,
    MISUSED,
    OPEN,
    STATUSES,
    UNREACHABLE,
    all_commands,
    as_table,
)
from holdfast.cli.main import holdfast
from holdfast.core.model.operations import Outcome, Status
from holdfast.wire.own import Fate
from holdfast_lab.cli.main import STATUSES as LAB_STATUSES
from holdfast_lab.cli.main import holdfast_lab
from holdfast_lab.processes.fork_server import COMMAND
from holdfast_lab.processes.local_cluster import LocalCluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"
COMMANDS = all_commands(holdfast) | all_commands(holdfast_lab)
PRODUCT_STATUSES = {
    path: (STATUSES | ACTION_STATUSES)[path]
    for path in all_commands(holdfast)
    if path in STATUSES | ACTION_STATUSES
}
"""In the order of the help."""
ALL_STATUSES = PRODUCT_STATUSES | LAB_STATUSES
NOBODY = "127.0.0.1:1"
CONFIG = """
[cluster]
heartbeat_ms = 200
suspect_after_ms = 30000
[partitions]
count = 7
[metastore]
voters = 1
"""

SECRETS = """
[security]
username = "u"
password = "geheim"
[limits]
auth_timeout_ms = 1500
"""
"""After failed logins a member waits for at most a third of this time."""

SILENT = {
    "status": [],
    "top": ["--once"],
    "cluster state": [],
    "cluster accept-loss": ["--yes"],
    "cluster reset-lost": ["--yes"],
    "cluster shutdown": ["--yes"],
    "cluster safe": [],
    "cluster restart": ["--yes"],
    "member evict": ["x", "--yes"],
    "cluster upgrade": ["--yes"],
    "cluster baseline show": [],
    "cluster baseline set": ["--yes"],
    "cluster baseline add": ["x"],
    "cluster baseline remove": ["x", "--yes"],
    "cluster baseline auto": ["5"],
    "member drain": ["x"],
    "member demote": ["x"],
    "member promote": ["x"],
    "plan": ["--live"],
    "map list": [],
    "map show": ["m"],
    "map set": ["m", "ttl=1h"],
    "map reset": ["m"],
    "map move": ["m", "--zone", "z"],
    "zone create": ["z"],
    "zone alter": ["z", "--replicas", "1"],
    "zone rename": ["z", "y"],
    "zone drop": ["z", "--yes"],
    "zone reset": ["z", "--yes"],
    "zone list": [],
    "zone show": ["z"],
    "metastore get": ["k"],
    "metastore scan": [],
    "metastore put": ["k", "v"],
    "metastore remove": ["k"],
    "metastore history": ["k"],
    "metastore watch": [],
    "metastore status": [],
    "metastore reset": ["--yes"],
    "metastore start": [],
    "cluster exchange": [],
    "transactions list": [],
    "transactions show": ["ab"],
    "transactions kill": ["ab"],
    "backup": ["--to", "{tmp}/backup"],
    "data get": ["m", "k"],
    "data put": ["m", "k", "v"],
    "data remove": ["m", "k"],
    "data keys": ["m"],
    "data size": ["m"],
    "data scan": ["m"],
    "data maps": [],
    "data structures": [],
    "data items": ["queue", "m"],
    "cp list": [],
    "cp show": ["lock", "x"],
    "cp destroy": ["lock", "x", "--yes"],
    "client list": [],
    "client kill": ["x", "7"],
    "config set": ["limits.connections=7"],
    "verify": [],
    "repair": ["--strategy", "primary"],
}
"""Commands that contact a cluster, and their arguments: status 4 when no member answers."""
SILENT_ON_SPARK = {
    "load": ["{data}", "--map", "m", "--key", "id"],
    "read": ["m"],
    "changes": ["m", "--once"],
    "export run": ["--to", "{tmp}/export"],
}

UNKNOWN: dict[str, list[str]] = {
    kind.declared.command: SILENT[kind.declared.command]
    for kind in ACTIONS.values()
    if kind.declared.command and not issubclass(kind, OperatorQuery)
} | {
    "data put": ["m", "k", "v"],
    "data remove": ["m", "k"],
    "cluster state": ["frozen"],
    "member demote": ["m1"],
    "member drain": ["m1"],
    "member evict": ["m2", "--yes"],
    "member promote": ["m1"],
    "client kill": ["m1", "7"],
}
"""Commands that change something: status 3 when it is unknown whether they have done so."""

WELL: list[tuple[str, list[str]]] = [
    ("status", []),
    ("top", ["--once", "--interval", "0.05"]),
    ("status", ["--rates", "--interval", "0.05"]),
    ("data put", ["m", "4711", '{"a": 1}', "--key-type", "int", "--value-type", "json", "--ttl", "3600"]),
    ("data put", ["m", "other", "text"]),
    ("data get", ["m", "4711", "--key-type", "int"]),
    ("data keys", ["m"]),
    ("data scan", ["m", "--limit", "0"]),
    ("data size", ["m"]),
    ("data maps", []),
    ("data structures", []),
    ("cp list", []),
    ("cp destroy", ["lock", "x", "--yes"]),
    ("cp show", ["lock", "x"]),
    ("data remove", ["m", "other"]),
    ("cluster state", []),
    ("cluster state", ["no-migration"]),
    ("cluster state", ["active"]),
    ("cluster safe", ["--wait", "30"]),
    ("cluster exchange", []),
    ("cluster exchange", ["--partition", "0", "--last", "3"]),
    ("cluster baseline show", []),
    ("cluster baseline set", ["--yes"]),
    ("cluster baseline show", []),
    ("cluster baseline auto", ["300"]),
    ("verify", []),
    ("verify", ["--keys", "--map", "m"]),
    ("repair", ["--strategy", "primary", "--dry-run"]),
    ("plan", ["--live", "--scenario", "join:1"]),
    ("plan", ["--live", "--scenario", "join:1", "--summary"]),
    ("map set", ["m", "ttl=1h", "backups=1"]),
    ("map list", []),
    ("map show", ["m"]),
    ("map reset", ["m"]),
    ("zone create", ["z", "--replicas", "1"]),
    ("zone alter", ["z", "--replicas", "2"]),
    ("zone rename", ["z", "y"]),
    ("map move", ["m", "--zone", "y"]),
    ("map move", ["m", "--no-zone"]),
    ("zone list", []),
    ("zone show", ["y"]),
    ("plan", ["--live", "--zone", "y", "--scenario", "join:1"]),
    ("zone reset", ["y", "--yes"]),
    ("zone drop", ["y", "--yes"]),
    ("metastore put", ["k", "v"]),
    ("metastore get", ["k"]),
    ("metastore scan", []),
    ("metastore history", ["k"]),
    ("metastore remove", ["k"]),
    ("metastore status", []),
    ("metastore start", []),
    ("transactions list", []),
    ("client list", []),
    ("backup", ["--to", "{tmp}/backup"]),
    ("restore", ["{tmp}/backup", "--no-spark", "--rename", "m=again"]),
    ("config set", ["limits.connections=900", "limits.idle_timeout_ms=60000"]),
]
"""In this order, on one cluster; those that have --json are called so, too, where that does not harm."""
ONCE = {
    "zone create",
    "zone alter",
    "zone rename",
    "zone drop",
    "backup",
    "restore",
    "data remove",
    "data put",
    "map move",
}
"""Done twice they would be refused, or something else: called with --json alone."""
NOT_SO: list[tuple[str, list[str]]] = [
    ("data get", ["m", "nothing"]),
    ("data remove", ["m", "nothing"]),
    ("data put", ["m", "4711", "x", "--key-type", "int", "--if-absent"]),
    ("metastore get", ["nothing"]),
    ("metastore put", ["k", "v", "--if-revision", "99"]),
    ("cluster accept-loss", ["--yes"]),
    ("cluster reset-lost", ["--yes"]),
    ("member evict", ["m1", "--yes"]),
    ("cluster upgrade", ["--level", "99", "--yes"]),
    ("cluster baseline add", ["nobody"]),
    ("zone show", ["nothing"]),
    ("map move", ["m", "--zone", "nothing"]),
    ("transactions show", ["abcd"]),
    ("transactions kill", ["abcd"]),
    ("restore", ["{tmp}/nothing", "--no-spark"]),
]
STEP = (
    '{"op": "conf_applied", "before": {"stable": {"peers": ["A"]}}, "event": {"applied": {"peers": ["A"]}}}'
)
LOCAL: dict[str, tuple[list[str], str]] = {
    "plan": ([], '{"current": [["A", "B"]], "target": [["A", "C"]]}'),
    "config show": ([], ""),
    "credentials": (["--token"], ""),
}
"""Commands that need no cluster: arguments, and what is piped in."""

ELSEWHERE = {
    ("data items", DONE): "tests/cli/test_data.py::test_structures_are_listed_and_shown_in_their_order",
    (
        "map set",
        OPEN,
    ): "tests/lab/sim/test_map_changes.py::test_an_order_that_was_accepted_waits_for_its_copies",
    (
        "map move",
        OPEN,
    ): "tests/cluster/test_map_moves.py::test_a_command_that_times_out_leaves_the_move_to_the_cluster",
    ("start", DONE): "tests/cluster/test_control.py::test_members_are_drained_and_the_cluster_is_ended",
    ("start", FAILED): "tests/cluster/test_control.py::test_a_member_with_the_only_copies_is_not_let_go",
    (
        "start",
        UNREACHABLE,
    ): "tests/runtime/test_join_timeout.py::test_a_member_that_finds_no_cluster_in_time_ends",
    ("start", BROKEN): "tests/cluster/test_control.py::test_an_error_inside_a_member_ends_its_process",
    (
        "cluster restart",
        DONE,
    ): "tests/cluster/test_supervisor.py::test_members_are_restarted_one_after_the_other",
    ("cluster restart", OPEN): "tests/actions/test_restart.py::"
    "test_a_member_ends_with_the_status_of_a_restart_when_it_has_left",
    ("client kill", DONE): "tests/actions/test_clients.py::test_clients_are_listed_and_ended",
    ("cluster accept-loss", DONE): "tests/cluster/test_persistence.py",
    ("cluster accept-loss", OPEN): "tests/cluster/test_lost_for_clients.py",
    ("cluster reset-lost", DONE): "tests/cluster/test_lost_for_clients.py",
    (
        "cluster shutdown",
        DONE,
    ): "tests/cluster/test_control.py::test_members_are_drained_and_the_cluster_is_ended",
    (
        "member evict",
        DONE,
    ): "tests/cluster/test_commands_live.py::test_a_member_that_was_killed_is_gone_at_once",
    ("cluster upgrade", DONE): "tests/cluster/test_rolling_upgrade.py::"
    "test_what_is_new_waits_until_all_have_it_and_the_operator_wants_it",
    ("cluster watch", DONE): "tests/cluster/test_control.py::test_what_happens_is_watched_also",
    ("cluster baseline add", DONE): "tests/cluster/test_baseline_members.py",
    ("cluster baseline remove", DONE): "tests/cluster/test_baseline_members.py",
    ("verify", OPEN): "tests/runtime/test_zone_verify.py::test_who_is_behind_is_busy",
    ("repair", OPEN): "tests/runtime/test_zone_verify.py::test_who_is_behind_is_busy",
    ("transactions show", DONE): "tests/runtime/in_process/test_embedded_transactions.py",
    ("transactions kill", DONE): "tests/runtime/in_process/test_embedded_transactions.py",
    ("metastore start", OPEN): "tests/lab/sim/test_metastore_start.py::"
    "test_a_minority_founds_nothing_and_finds_the_one_of_the_others_when_it_returns",
    (
        "metastore reset",
        DONE,
    ): "tests/cluster/test_commands_live.py::test_the_metastore_goes_on_with_one_of_three",
    ("help", DONE): "tests/cli/test_commands.py::test_help_explains_topics_and_commands",
    ("journal list", DONE): "tests/cli/test_journal.py::test_list",
    ("journal list", FAILED): "tests/cli/test_journal.py::test_list_tells_of_what_it_cannot_read",
    ("journal verify", DONE): "tests/cli/test_journal.py::test_verify_finds_nothing_in_a_sound_directory",
    ("journal verify", FAILED): "tests/cli/test_journal.py::test_verify_finds_each_damaged_file",
    ("journal print", DONE): "tests/cli/test_journal.py::test_print",
    ("journal print", FAILED): "tests/cli/test_journal.py::test_print_goes_on_after_damage",
    ("analyse", DONE): "tests/cli/test_statuses_of_runs.py::test_jobs_on_spark",
    ("analyse", FAILED): "tests/cli/test_statuses_of_runs.py::test_jobs_on_spark",
    ("simulate", DONE): "tests/cli/test_commands.py",
    ("simulate", FAILED): "tests/cli/test_commands.py",
    ("replay", DONE): "tests/lab/sim/test_recording.py",
    ("replay", FAILED): "tests/lab/sim/test_recording.py",
    ("campaign", DONE): "tests/cli/test_statuses_of_runs.py::test_jobs_on_spark",
    ("campaign", FAILED): "tests/cli/test_statuses_of_runs.py::test_jobs_on_spark",
    ("matrix", DONE): "tests/lab/cli/test_matrix.py::test_two_processes_find_the_same_as_one",
    (
        "matrix",
        FAILED,
    ): "tests/lab/cli/test_matrix.py::test_a_sweep_tells_what_was_played_and_fails_with_its_cases",
    ("load", DONE): "tests/spark/pipeline/test_load.py::test_the_command_says_what_it_did",
    ("read", DONE): "tests/spark/pipeline/test_load_doubts.py::test_the_commands_hand_their_options_over",
    ("changes", DONE): "tests/cli/test_stream.py::test_changes_of_real_members_are_printed_and_applied",
    ("export run", DONE): "tests/cli/test_export_live.py::test_a_grid_goes_into_a_folder_and_back",
    ("export verify", DONE): "tests/cli/test_export_live.py::test_a_grid_goes_into_a_folder_and_back",
    ("export verify", FAILED): "tests/cli/test_backup.py",
    ("restore", OPEN): "tests/cli/test_backup.py",
    ("member demote", DONE): "tests/cluster/test_control.py",
    ("demo", DONE): "tests/lab/demo/test_main_job.py::test_the_exit_status_tells_whether_all_was_well",
    ("demo", FAILED): "tests/lab/demo/test_main_job.py::test_the_exit_status_tells_whether_all_was_well",
    ("chaos", DONE): "tests/cli/test_statuses_of_runs.py::test_chaos",
    ("chaos", FAILED): "tests/cli/test_statuses_of_runs.py::test_chaos",
    ("fuzz", DONE): "tests/cli/test_statuses_of_runs.py::test_fuzz",
    ("fuzz", FAILED): "tests/cli/test_statuses_of_runs.py::test_fuzz",
    ("resize", DONE): "tests/lab/chaos/test_resize.py::test_the_exit_status_tells_whether_anything_was_lost",
    (
        "resize",
        FAILED,
    ): "tests/lab/chaos/test_resize.py::test_the_exit_status_tells_whether_anything_was_lost",
}
"""What takes long, or needs a state of its own."""


def words_of(path: str) -> list[str]:
    """What is typed for a command."""
    short = {long: word for word, long in ALIASES.items()}
    return short.get(path, path).split()


def until(reached: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def run(path: str, arguments: list[str], *, tmp: Path = Path(), given: str = "", address: str = "") -> Result:
    filled = [each.replace("{tmp}", str(tmp)) for each in arguments]
    where = ["-a", address] if address else []
    return CliRunner().invoke(group_of(words_of(path)), [*words_of(path), *filled, *where], input=given)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(members=3, config=CONFIG) as running:
        running.wait_settled(120)
        address = running.members[0].client_address
        until(lambda: run("zone create", ["first"], address=address).exit_code == DONE)
        until(lambda: run("cluster safe", [], address=address).exit_code == DONE)
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("statuses")


# -- the table


def test_the_table_has_every_command_and_every_status_is_tested_somewhere() -> None:
    assert ALL_STATUSES.keys() == COMMANDS.keys()
    tested = {(path, MISUSED) for path in COMMANDS}
    tested |= {(path, status) for path in (*SILENT, *SILENT_ON_SPARK) for status in (FAILED, UNREACHABLE)}
    tested |= {("cluster watch", FAILED), ("metastore watch", UNREACHABLE), ("restore", UNREACHABLE)}
    tested |= {(path, OPEN) for path in (*UNKNOWN, *(path for path, _ in STAND))}
    tested |= {(path, DONE) for path, _ in WELL} | {(path, DONE) for path in LOCAL}
    tested |= {(path, FAILED) for path, _ in NOT_SO} | ELSEWHERE.keys()
    tested |= {("metastore watch", DONE), ("member drain", DONE), ("member promote", DONE)}
    wanted = {(path, status) for path, meanings in ALL_STATUSES.items() for status in meanings}
    assert wanted - tested == set()
    assert tested - wanted == set(), "of no use"


def test_what_is_tested_elsewhere_is_there() -> None:
    root = Path(__file__).parents[2]
    for what, where in ELSEWHERE.items():
        file, _, name = where.partition("::")
        text = (root / file).read_text(encoding="utf-8")
        assert f"def {name}" in text, (what, where)


def test_help_and_documentation_tell_the_same(request: pytest.FixtureRequest) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for statuses in (PRODUCT_STATUSES, LAB_STATUSES):
        table = as_table(statuses)
        if request.config.getoption("--rewrite"):
            row = re.escape(table.splitlines()[2].split(" | ")[0])
            text = re.sub(
                rf"\| command \|.*\n\|---.*\n{row}(?:.*\n)+?(?=\n|\Z)", lambda _, new=table: new + "\n", text
            )
            DOCUMENT.write_text(text, encoding="utf-8")
        assert table in text, "write it again: --rewrite"
    told = " ".join(CliRunner().invoke(holdfast, ["--help"]).output.split())
    for status, meaning in GENERAL.items():
        assert f"{status} {meaning}" in told
    for path, meanings in ALL_STATUSES.items():
        told = " ".join(
            CliRunner().invoke(group_of(words_of(path)), [*words_of(path), "--help"]).output.split()
        )
        for status, meaning in meanings.items():
            assert f"{status} {meaning}" in told, path


def test_every_command_that_shows_something_has_json_and_a_schema() -> None:
    without = {
        path
        for path, command in COMMANDS.items()
        if not any("--json" in each.opts for each in command.params)
    }
    assert without == {"start", "help", "demo", "chaos", "fuzz"}
    schemas = {file.stem for file in (DOCUMENT.parent / "schemas").glob("*.json")}
    assert schemas == {path.replace(" ", "-") for path in COMMANDS.keys() - without}


def test_a_schema_that_is_not_kept_is_noticed() -> None:
    check(["cluster", "safe"], '{"safe": true, "reason": ""}\n')
    with pytest.raises(AssertionError, match="'reason' is a required property"):
        check(["cluster", "safe"], '{"safe": true}\n')
    assert path_of(["export", "flights", "--json"]) == "export run"
    assert path_of(["export", "verify", "x"]) == "export verify"


# -- every status


@pytest.mark.parametrize("path", COMMANDS)
def test_a_wrong_call_is_status_2(path: str, tmp_path: Path) -> None:
    told = run(path, ["--nonsense"], tmp=tmp_path)
    assert told.exit_code == MISUSED, told.output
    assert "No such option" in told.output


@pytest.mark.parametrize("path", SILENT)
def test_a_cluster_that_cannot_be_reached_is_status_4(path: str, tmp_path: Path) -> None:
    told = run(path, SILENT[path], tmp=tmp_path, address=NOBODY)
    assert told.exit_code == UNREACHABLE, told.output
    assert "cannot connect to 127.0.0.1:1" in told.output
    assert "Traceback" not in told.output


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_jobs_without_a_cluster_or_without_credentials(tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    data.write_text("id,name\n1,a\n", encoding="utf-8")
    with LocalCluster(members=1, config=CONFIG + SECRETS, user=("u", "geheim")) as running:
        for path, given in SILENT_ON_SPARK.items():
            arguments = [each.replace("{data}", str(data)) for each in given]
            told = run(path, arguments, tmp=tmp_path, address=NOBODY)
            assert told.exit_code == UNREACHABLE, (path, told.output)
            told = run(path, arguments, tmp=tmp_path, address=running.members[0].client_address)
            assert told.exit_code == FAILED, (path, told.output)


def test_a_command_that_members_reject_is_status_1(tmp_path: Path) -> None:
    with LocalCluster(members=1, config=CONFIG + SECRETS, user=("u", "geheim")) as running:
        address = running.members[0].client_address
        for path, arguments in SILENT.items():
            told = run(path, arguments, tmp=tmp_path, address=address)
            assert told.exit_code == FAILED, (path, told.output)
            assert "Traceback" not in told.output


def test_commands_that_need_no_cluster(tmp_path: Path) -> None:
    for path, (arguments, given) in LOCAL.items():
        assert run(path, arguments, tmp=tmp_path, given=given).exit_code == DONE, path
        told = run(path, [*arguments, "--json"], tmp=tmp_path, given=given)
        assert told.exit_code == DONE, told.output


def test_what_is_so_is_status_0(cluster: LocalCluster, folder: Path) -> None:
    address = f"{NOBODY},{cluster.members[0].client_address}"
    for path, arguments in WELL:
        forms = [["--json"]] if path in ONCE else [[], ["--json"]]
        for form in forms:
            told = run(path, [*arguments, *form], tmp=folder, address=address)
            assert told.exit_code == DONE, (path, form, told.output)
    again = ["{tmp}/backup", "--no-spark", "--rename", "m=again"]
    assert run("restore", again, tmp=folder, address=NOBODY).exit_code == UNREACHABLE


def test_what_is_not_so_is_status_1(cluster: LocalCluster, folder: Path) -> None:
    address = cluster.members[1].client_address
    kept = ["m", "4711", "x", "--key-type", "int"]
    assert run("data put", kept, tmp=folder, address=address).exit_code == DONE
    for path, arguments in NOT_SO:
        for form in ([], ["--json"]):
            told = run(path, [*arguments, *form], tmp=folder, address=address)
            assert told.exit_code == FAILED, (path, form, told.output)
            assert form or len(told.stderr.splitlines()) == 1, (path, told.stderr)


def test_the_address_may_be_a_variable_and_members_have_names(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    door = cluster.members[0].client_address
    monkeypatch.setenv("HOLDFAST_ADDRESS", f"{NOBODY},{door}")
    # What the tests before have ordered is news that members still tell each other.
    told = run("cluster safe", ["--wait", "30"], tmp=folder)
    assert told.exit_code == DONE, told.output
    assert run("cluster safe", [], tmp=folder, address=NOBODY).exit_code == UNREACHABLE, "a flag wins"
    twice = ["cluster", "safe", "--wait", "30", "-a", NOBODY, "-a", door]
    assert CliRunner().invoke(holdfast, twice).exit_code == DONE
    row = json.loads(run("status", ["--json"], tmp=folder).stdout)["members"][2]
    only = run("config set", ["limits.connections=800", "--member", row["name"]], tmp=folder)
    assert only.exit_code == DONE
    assert only.stdout == f"{row['host']}:{row['client_port']}: has limits.connections=800\n"
    unknown = run("config set", ["limits.connections=800", "--member", "nobody"], tmp=folder)
    assert unknown.exit_code == MISUSED
    assert "no member is called 'nobody'; members are" in unknown.stderr


def test_a_reset_map_has_its_configured_settings(cluster: LocalCluster) -> None:
    address = cluster.members[0].client_address

    def shown() -> tuple[int, str]:
        rows = json.loads(run("map show", ["m", "--json"], address=address).stdout)["settings"]
        return next((row["value"], row["source"]) for row in rows if row["setting"] == "ttl_ms")

    assert run("map set", ["m", "ttl=1h", "backups=2"], address=address).exit_code == DONE
    assert shown() == (3_600_000, "map set")
    told = run("map reset", ["m"], address=address)
    assert (told.exit_code, told.stdout) == (DONE, "m has the settings of the configuration\n"), told.output
    assert shown() == (0, "built-in")


def member_rows(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("status", ["--json"], address=address).stdout)["members"]
    return found


def started(command: list[str]) -> subprocess.Popen[str]:
    """A process that Ctrl-C ends, also where the tests run in the background, which is deaf to it."""
    return subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("path", ["cluster watch", "metastore watch"])
def test_a_watch_ends_with_ctrl_c(cluster: LocalCluster, path: str) -> None:
    command = [*COMMAND, *words_of(path), "-a", cluster.members[0].client_address]
    with started(command) as process:
        try:
            begins = process.stdout if path == "cluster watch" else process.stderr
            assert begins is not None
            assert "watching" in begins.readline()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=120)
            assert process.returncode == DONE, said
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("setting", "message"),
    [("nonsense=2", "unknown key maps.m.nonsense"), ("backups=9", "it must be a whole number from 0 to 6")],
)
def test_a_wrong_setting_of_a_map_is_status_2_without_a_member(setting: str, message: str) -> None:
    told = run("map set", ["m", setting], address="127.0.0.1:1")
    assert told.exit_code == MISUSED
    assert message in told.stderr


def test_a_watch_that_is_refused_fails(cluster: LocalCluster) -> None:
    """The one thing that ends `cluster watch` by itself: it goes on when nobody answers."""
    member = cluster.members[0]
    row = next(one for one in member_rows(member.client_address) if one["uuid"] == member.uuid)
    told = run("cluster watch", [], address=f"{row['host']}:{row['member_port']}")
    assert told.exit_code == FAILED
    port = member.client_address.rpartition(":")[2]
    assert "is the port for members" in told.stderr
    assert told.stderr.endswith(
        f"give the port for clients (member.client_port, 5701 by default), which is {port}\n"
    )


REAL = {
    DONE: ["cluster", "safe", "--wait", "1min"],
    FAILED: ["data", "get", "m", "nothing"],
    MISUSED: ["cluster", "safe", "--wait", "1 fortnight"],
    OPEN: ["cluster", "state", "frozen", "--timeout", "0"],
}


@pytest.mark.parametrize("status", REAL)
def test_a_process_ends_with_the_status(cluster: LocalCluster, status: int, folder: Path) -> None:
    address = cluster.members[0].client_address
    assert run("data put", ["m", "k", "v"], tmp=folder, address=address).exit_code == DONE
    told = subprocess.run(
        [*COMMAND, *REAL[status], "-a", address], capture_output=True, text=True, check=False, timeout=120
    )
    assert told.returncode == status, told.stderr
    assert "Traceback" not in told.stderr
    assert run("cluster state", ["active"], tmp=folder, address=address).exit_code == DONE


RUNNING = TransactionState("ab", "", "open", 0, 0, False, "", [], 0, [], Topology(0, 0))


@pytest.fixture(scope="module")
def forgetful() -> Iterator[MemoryCluster]:
    """Members that answer each change with "unknown"."""

    def act(member: MemoryMember, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        if isinstance(action, ShowStatus):
            done(Fate.DONE, "", member.status())
        elif isinstance(action, ListTransactions):
            done(Fate.DONE, "", TransactionList([RUNNING][member.number - 1 :], [], 0))
        else:
            done(Fate.UNKNOWN, "the leader has not answered")

    with MemoryCluster(2, 7) as running:
        for member in running.members:
            member.act = partial(act, member)  # type: ignore[method-assign]
            member.answer_with = Outcome(Status.UNKNOWN, detail="the leader has not answered")
        yield running


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("path", UNKNOWN)
def test_an_unknown_outcome_is_status_3(path: str, form: list[str], forgetful: MemoryCluster) -> None:
    """1 would say that nothing has happened: a script would repeat the command, and perhaps do it twice."""
    told = run(path, [*UNKNOWN[path], *form], address=forgetful.addresses().split(",")[0])
    assert told.exit_code == OPEN, told.output
    assert "the leader has not answered" in told.output
    assert "Traceback" not in told.output


STAND: list[tuple[str, list[str]]] = [
    ("cluster state", ["frozen", "--timeout", "0"]),
    ("member promote", ["{lite}", "--timeout", "0"]),
    ("member drain", ["{lite}", "--timeout", "0"]),
    ("cluster shutdown", ["--yes", "--timeout", "0"]),
]
"""The last ones of this file: they end the cluster."""


def test_an_order_that_stands_is_status_3(cluster: LocalCluster, folder: Path) -> None:
    lite = cluster.start_member(lite=True)
    cluster.wait_settled(120)
    address = cluster.members[0].client_address
    assert run("member promote", [lite.name], tmp=folder, address=address).exit_code == DONE
    other = cluster.start_member(lite=True)
    cluster.wait_settled(120)
    assert run("member drain", [lite.name], tmp=folder, address=address).exit_code == DONE
    for path, arguments in STAND:
        filled = [each.replace("{lite}", other.name) for each in arguments]
        told = run(path, [*filled, "--json"], tmp=folder, address=address)
        assert told.exit_code == OPEN, (path, told.output)
        if path == "cluster state":
            assert run("cluster state", ["active"], tmp=folder, address=address).exit_code == DONE


def test_the_package_names_its_own_python() -> None:
    """`python -m holdfast` is the same command."""
    told = subprocess.run(
        [sys.executable, "-m", "holdfast", "cluster", "safe", "-a", NOBODY],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == UNREACHABLE
    assert told.stdout.startswith("not safe: no member answers")
