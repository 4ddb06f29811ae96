"""The command line, as a person meets it: what it says, and the exit status that a script sees."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests import statuses
from tests.command_lines import group_of

from holdfast.cli import operator_command
from holdfast.cli import status as inspection
from holdfast.cli.credentials import Credentials
from holdfast.cli.exit_statuses import all_commands
from holdfast.cli.main import COMMANDS, holdfast
from holdfast.config import Settings
from holdfast.config.verifiers import PasswordVerifier, TokenVerifier, read_verifier
from holdfast.core.model.member_status import MemberStatus
from holdfast.errors import ConfigError, Denied, HoldfastError, NotReady, Unknown
from holdfast.runtime import data_lane as lanes
from holdfast.runtime import process
from holdfast.server.hazelcast import reference_lane
from holdfast_lab.chaos import nemeses
from holdfast_lab.cli import simulate as simulation
from holdfast_lab.cli.campaigns import NEMESES
from holdfast_lab.cli.main import holdfast_lab
from holdfast_lab.cli.simulate import Terms, parse_seeds
from holdfast_lab.sim.ablations.rules import RULES
from holdfast_lab.sim.lies import LIES
from holdfast_lab.sim.marks import MARKS, NEVER
from holdfast_lab.sim.run import Verdict


def run(*arguments: str, environ: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(group_of(arguments), arguments, env=environ, catch_exceptions=False)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("stauts", "status"), ("exprt", "export"), ("cluster saef", "safe"), ("zone lits", "list")],
)
def test_a_mistyped_command_is_corrected(typed: str, meant: str) -> None:
    told = CliRunner().invoke(holdfast, typed.split())
    assert told.exit_code == 2
    assert re.search(rf"Did you mean.*'{meant}'", told.output), told.output


# -- the group


@pytest.mark.parametrize(
    ("error", "referred", "status"),
    [
        (NotReady("partition 3 has no owner"), True, 1),
        (Unknown("no answer for 20 s"), True, 3),
        (NotReady("2 of 3 members are silent: holdfast member evict b c --without-majority"), False, 1),
        (Denied("the password is wrong"), False, 1),
    ],
)
def test_commands_that_get_no_answer_refer_to_cluster_safe(
    error: HoldfastError, referred: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a lost majority members answer no reads and writes; `cluster safe` names the command to give."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(operator_command, "Client", fails)
    told = CliRunner().invoke(holdfast, ["data", "get", "flights", "a"])
    assert told.exit_code == status
    assert told.output.startswith(f"Error: {error}\n")
    assert ("`holdfast cluster safe`" in told.output) is referred


def test_an_error_of_the_system_is_one_line_and_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/backup")

    monkeypatch.setattr(operator_command, "Client", fails)
    told = CliRunner().invoke(holdfast, ["data", "get", "flights", "a"])
    assert (told.exit_code, told.output) == (1, "Error: [Errno 13] Permission denied: '/backup'\n")


def test_the_package_can_be_run_as_a_module() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (told.returncode, told.stdout) == (0, run("--version").output)


def test_every_command_explains_itself() -> None:
    listed = run("--help").output
    for name in COMMANDS:
        assert name in listed
        command = holdfast.get_command(click.Context(holdfast), name)
        assert command is not None
        assert command.name == name
        assert command.short_help
        told = run(name, "--help")
        assert told.exit_code == 0
        assert len(told.output.splitlines()) > 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["connection"], "--tls-any-host  "),
        (["connection"], "HOLDFAST_SECURITY_TOKEN"),
        (["units"], "1K is 1024 bytes"),
        (["exit-status"], "4   no member can be reached"),
        (["cluster", "safe"], "Usage: holdfast cluster safe [OPTIONS]"),
        ([], "Usage: holdfast [OPTIONS] COMMAND"),
    ],
)
def test_help_explains_topics_and_commands(words: list[str], said: str) -> None:
    assert said in run("help", *words).output


def test_help_about_nothing_names_the_topics() -> None:
    told = run("help", "cluster", "sfe")
    assert told.exit_code == 2
    assert "topics are connection, units, exit-status" in told.output


def test_connection_options_are_described_once() -> None:
    """The help of a command has one line about them, and still takes all."""
    shown = run("data", "get", "--help").output
    assert "see holdfast help" in shown
    assert "--tls" not in shown
    told = run("data", "get", "m", "k", "--tls-any-host", "-a", "127.0.0.1:1")
    assert told.exit_code == 4, told.output


TEXT_MAX = 10
"""Most lines of a help besides its options and exit statuses."""


def all_with_groups(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from all_with_groups(command, *path, name)


EXPLAINED = [*all_with_groups(holdfast, "holdfast"), *all_with_groups(holdfast_lab, "python -m holdfast_lab")]


@pytest.mark.parametrize(("name", "command"), EXPLAINED, ids=[name for name, _ in EXPLAINED])
def test_every_help_is_short_and_has_an_example(name: str, command: click.Command) -> None:
    context = click.Context(command, terminal_width=110)
    formatter = context.make_formatter()
    command.format_help_text(context, formatter)
    lines = [line for line in formatter.getvalue().splitlines() if line.strip()]
    assert len(lines) <= TEXT_MAX, lines
    short = name.removesuffix(" run").removesuffix(" show")
    assert any(line.strip().startswith(short) or f"| {short}" in line for line in lines), lines


def examples(command: click.Command) -> Iterator[list[str]]:
    """The words of each example, without what the shell does with them."""
    for line in (command.help or "").splitlines():
        text = line.strip().removeprefix("python -m ")
        if text.startswith(("holdfast ", "holdfast_lab ")):
            # Some have a remark behind them.
            words = shlex.split(re.split(r"  +| \|\| | \| ", text)[0])
            if words[-1] != "-":
                yield words


@pytest.mark.parametrize(("name", "command"), EXPLAINED, ids=[name for name, _ in EXPLAINED])
def test_examples_are_calls_that_the_command_takes(name: str, command: click.Command) -> None:
    for program, *words in examples(command):
        called: click.Command = holdfast_lab if program == "holdfast_lab" else holdfast
        context = click.Context(called)
        while isinstance(called, click.Group) and words:
            if words[0] in called.commands or words[0] in called.list_commands(context):
                found = called.get_command(context, words.pop(0))
            else:
                found = called.commands.get({"export": "run", "config": "show"}.get(called.name or "", ""))
            assert found is not None, (name, words)
            called, context = found, click.Context(found)
        if not isinstance(called, click.Group):
            called.make_parser(context).parse_args(words)


def test_examples_stay_one_line_each() -> None:
    for command, example in (
        (("start",), "holdfast start --name two --seed 127.0.0.1:5751"),
        (("cluster",), "holdfast cluster state no-migration      change the state"),
        (("cluster", "safe"), "holdfast cluster safe --wait 2min -a 127.0.0.1:5701,127.0.0.1:5702"),
        (("member", "drain"), "holdfast member drain 127.0.0.1:5703 127.0.0.1:5704 --timeout 1min"),
    ):
        told = run(*command, "--help").output
        assert example in [line.strip() for line in told.splitlines()]
        assert "\\b" not in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["cluster", "state", "asleep"],
        ["cluster", "safe", "--wait", "-1"],
        ["cluster", "reset-lost", "--yes", "--partitions", "3-x"],
        ["cluster", "baseline", "auto", "soon"],
        ["cluster", "baseline", "auto", "-1"],
        ["cluster", "baseline", "auto", "86401"],
        ["cluster", "baseline", "add"],
        ["cluster", "reset-lost", "--yes", "--partitions", "1,,2"],
        ["cluster", "reset-lost", "--yes", "--partitions", "0-100000"],
        ["cluster", "state", "-a", "127.0.0.1:port"],
        ["member", "drain"],
        ["member", "drain", "127.0.0.1:99999999"],
        ["member", "demote"],
        ["member", "evict"],
        ["config", "set"],
        ["config", "set", "limits.key_bytes=99"],
    ],
)
def test_orders_that_are_wrong_are_refused_before_they_are_given(arguments: list[str]) -> None:
    told = run(*arguments)
    assert told.exit_code == 2
    assert "Traceback" not in told.output


def test_orders_to_nobody_fail_in_one_line() -> None:
    for arguments in (
        ["cluster", "state", "-a"],
        ["cluster", "shutdown", "--yes", "-a"],
        ["member", "demote"],
    ):
        told = run(*arguments, "127.0.0.1:1")
        assert told.exit_code == 4
        assert "cannot connect to 127.0.0.1:1" in told.output
        assert len(told.output.splitlines()) == 1


@pytest.mark.parametrize("switch", [["-O"], ["-OO"]])
def test_python_without_assertions_is_refused(switch: list[str]) -> None:
    code = "from holdfast.cli.main import main; main()"
    told = subprocess.run(
        [sys.executable, *switch, "-c", code, "--version"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert "does not run under python -O" in told.stderr


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("holdfast")
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("holdfast, version ")


def test_shells_complete_commands(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("holdfast")
    asked = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast cluster sa", "COMP_CWORD": "2"}
    told = subprocess.run(
        [command], capture_output=True, text=True, check=True, env=os.environ | asked, cwd=tmp_path
    )
    assert told.stdout == "plain,safe\n"


def test_the_command_line_works_without_spark() -> None:
    code = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'hazelcast', 'numpy'): sys.modules[name] = None\n"
        "from holdfast.cli.main import main; main()"
    )
    told = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert all(name in told.stdout for name in COMMANDS)


def test_a_command_does_not_wait_for_the_modules_of_others() -> None:
    code = (
        "import sys\n"
        "from holdfast.cli.main import holdfast\n"
        "try: holdfast(['start', '--help'])\n"
        "finally: print(*(name for name in sys.modules if name.startswith('holdfast.cli.')))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(told.stdout.splitlines()[-1].split())
    assert "holdfast.cli.start" in imported
    assert not imported & {f"holdfast.cli.{entry.where.partition(':')[0]}" for entry in COMMANDS.values()} - {
        "holdfast.cli.start"
    }


def test_the_list_of_commands_imports_none_of_them() -> None:
    """Each of them brings clients, settings or Spark's options: a second of processor time for one line each."""
    code = (
        "import sys\n"
        "from holdfast.cli.main import holdfast\n"
        "try: holdfast(['--help'])\n"
        "finally: print(*(name for name in sys.modules if name.startswith('holdfast.')))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(told.stdout.splitlines()[-1].split())
    assert "holdfast.cli.lazy_group" in imported
    assert not [
        name for name in imported if name.startswith(("holdfast.client", "holdfast.core", "holdfast.wire"))
    ]
    assert all(entry.summary in " ".join(told.stdout.split()) for entry in COMMANDS.values())


# -- start and config


def started(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, environ: dict[str, str] | None = None
) -> Settings:
    """The settings with which `holdfast start` would run a member."""
    seen: list[Settings] = []

    def main(settings: Settings) -> int:
        seen.append(settings)
        return 7

    monkeypatch.setattr(process, "main", main)
    told = run("start", *arguments, environ=environ)
    assert told.exit_code == 7, told.output
    return seen[0]


def test_start_lays_flags_over_the_environment_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "member.toml"
    file.write_text(
        "[member]\nname = 'file'\navailability_zone = 'file'\nclient_port = 1000\n[maps.flights]\nbackups = 3\n"
    )
    settings = started(
        monkeypatch,
        *("--config", str(file), "--client-port", "1002", "--seed", "a:1", "--seed", "b:2", "--lite"),
        *("--set", "partitions.parallel_migrations=3", "--set", "maps.other.backups=0"),
        environ={"HOLDFAST_MEMBER_AVAILABILITY_ZONE": "environment", "HOLDFAST_MEMBER_CLIENT_PORT": "1001"},
    )
    assert (settings.member.name, settings.member.availability_zone, settings.member.client_port) == (
        "file",
        "environment",
        1002,
    )
    assert settings.cluster.seeds == ["a:1", "b:2"]
    assert settings.member.lite
    assert settings.partitions.parallel_migrations == 3
    assert (settings.map("flights").backups, settings.map("other").backups) == (3, 0)


def test_flags_that_are_left_out_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "member.toml"
    file.write_text("[member]\nlite = true\n[cluster]\nbootstrap = true\n")
    settings = started(monkeypatch, environ={"HOLDFAST_CONFIG": str(file)})
    assert settings.given == {"member.lite", "cluster.bootstrap"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--client-port", "70000"], "member.client_port = 70000 is not allowed"),
        (["--host", "0.0.0.0"], "is not allowed without TLS and credentials"),
        (["--set", "cluster.nmae=x"], "did you mean name?"),
        (["--set", "nothing"], "must be SECTION.KEY=VALUE"),
        (["--set", "security.password=geheim"], "HOLDFAST_SECURITY_PASSWORD"),
        (["--config", "/does/not/exist.toml"], "cannot read the settings in /does/not/exist.toml"),
        (["--seed", "nonsense"], "cluster.seeds = 'nonsense' is not allowed"),
    ],
)
def test_start_refuses_what_is_wrong_before_it_starts(arguments: list[str], message: str) -> None:
    told = run("start", *arguments)
    assert told.exit_code == 2
    assert message in told.output
    assert "Traceback" not in told.output
    assert "geheim" not in told.output


def test_config_checks_a_file(tmp_path: Path) -> None:
    file = tmp_path / "member.toml"
    file.write_text("[partitions]\ncount = 13\n")
    assert "1 settings are given" in run("config", str(file)).output
    file.write_text("[partitions]\ncount = 'many'\n")
    told = run("config", str(file))
    assert told.exit_code == 2
    assert f"{file}: partitions.count = 'many' is not allowed" in told.output


# -- simulate


def test_seeds_are_a_count_or_a_range() -> None:
    assert parse_seeds("3") == range(3)
    assert parse_seeds("100..199") == range(100, 200)
    for wrong in ("", "x", "0", "5..4", "-3..2", "1..x"):
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(wrong)


def fake(seed: int, terms: Terms, *, story: object = None, record: object = None) -> Verdict:
    """Fails on seed 3 always, and on seed 2 when a rule is off, unless that is 'fence'."""
    without = terms.without
    if callable(story):
        story(f"story of {seed}")
    if seed == 4:
        raise ValueError("a bug")
    bad = seed == 3 or (seed == 2 and bool(without - {"fence"}))
    return Verdict(
        seed, not bad, ["lost key 7"] if bad else [], f"{seed:064x}", {"fault_rot": 1, "reads": seed}
    )


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "simulate_seed", fake)


@pytest.mark.usefixtures("faked")
def test_a_campaign_says_which_seeds_failed_and_how_to_replay_them() -> None:
    good = run("simulate", "--seeds", "3", "--workers", "1")
    assert good.exit_code == 0
    assert "3 seeds, 0 to 2, 0 migrations under faults, 0 of 0 acknowledged writes judged" in good.output
    assert ": 0 failed" in good.output.splitlines()[-2]
    bad = run("simulate", "--seeds", "2..4", "--workers", "1")
    assert bad.exit_code == 1
    assert "python -m holdfast_lab simulate --seed 3" in bad.output
    assert "lost key 7" in bad.output
    assert "ValueError: a bug" in bad.output
    assert ": 2 failed" in bad.output.splitlines()[-2]


@pytest.mark.usefixtures("faked")
@pytest.mark.parametrize(
    ("options", "journal", "flags"),
    [
        ((), "mixed", " --journal mixed"),
        (("--journal", "off"), "off", " --journal off"),
        (("--journal", "lazy"), "lazy", " --journal lazy"),
        (("--journal", "mixed", "--without", "fence"), "mixed", " --without fence --journal mixed"),
        (("--power-cuts",), "sync", " --power-cuts"),
    ],
)
def test_how_maps_are_journalled_is_said_to_each_run_and_in_the_replay(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], journal: str, flags: str
) -> None:
    seen: list[Terms] = []

    def noted(seed: int, terms: Terms, *, story: object = None) -> Verdict:
        seen.append(terms)
        return fake(seed, terms, story=story)

    monkeypatch.setattr(simulation, "simulate_seed", noted)
    told = run("simulate", "--seeds", "3..3", "--workers", "1", *options)
    assert f"python -m holdfast_lab simulate --seed 3{flags}\n" in told.output
    assert [(terms.journal, terms.power_cuts) for terms in seen] == [(journal, "--power-cuts" in options)]


@pytest.mark.usefixtures("faked")
def test_the_summary_ends_with_the_faults_by_kind() -> None:
    lines = run("simulate", "--seeds", "3", "--workers", "1").output.splitlines()
    (reads,) = [at for at, line in enumerate(lines) if "reads" in line]
    (rot,) = [at for at, line in enumerate(lines) if "fault rot" in line]
    assert reads < rot
    assert " 3 " in lines[rot]


def exercised(*without: str) -> dict[str, int | float]:
    """The figures of a run that has hit every mark but these."""
    return {f"mark_{name}": 2 for name in MARKS if name not in without and name not in NEVER}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--seeds", "3"), 0),
        (("--seeds", "3", "--coverage"), 1),
        (("--seeds", "200"), 1),
        (("--seeds", "200", "--without", "fence"), 0),
        (("--seeds", "200", "--journal", "off"), 0),
    ],
    ids=["few seeds", "few, and asked for", "many seeds", "a rule is off", "nothing has a disk"],
)
def test_a_long_campaign_fails_when_something_never_came_up(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int
) -> None:
    def never_rots(seed: int, terms: Terms, *, story: object = None) -> Verdict:
        return Verdict(seed, True, [], f"{seed:064x}", exercised("fault rot"))

    monkeypatch.setattr(simulation, "simulate_seed", never_rots)
    told = run("simulate", "--workers", "1", *options)
    assert told.exit_code == code, told.output
    assert ("never came up: fault rot" in told.output) == bool(code)


def test_the_coverage_says_how_often_each_mark_was_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    def every(seed: int, terms: Terms, *, story: object = None) -> Verdict:
        return Verdict(seed, True, [], f"{seed:064x}", exercised())

    monkeypatch.setattr(simulation, "simulate_seed", every)
    told = run("simulate", "--seeds", "3", "--workers", "1", "--coverage")
    assert told.exit_code == 0
    row = next(line for line in told.output.splitlines() if "lite members" in line)
    assert re.search(r"lite members\s*│\s*6\s*│\s*3\b", row)
    assert "cannot occur: answer FAILED" in told.output
    short = run("simulate", "--seeds", "3", "--workers", "1").output
    count = len(MARKS) - len(NEVER)
    assert f"{count} of {count} marks were hit" in short


def test_power_cuts_are_only_for_what_survives_them() -> None:
    told = run("simulate", "--power-cuts", "--journal", "lazy")
    assert told.exit_code == 2
    assert "--power-cuts is not allowed with --journal lazy" in told.output


@pytest.mark.usefixtures("faked")
def test_members_are_compiled_where_that_is_wanted_and_possible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lanes, "data_lane", lambda: lanes.DataLane("compiled", reference_lane))
    told = run("simulate", "--seeds", "3..3", "--workers", "1", "--compiled")
    assert "python -m holdfast_lab simulate --seed 3 --journal mixed --compiled\n" in told.output
    told = run("simulate", "--seed", "3", "--compiled", "--record", str(tmp_path / "run"))
    assert told.exit_code == 2
    assert "--record is not allowed with --compiled" in told.output
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(
        lanes, "data_lane", lambda: lanes.DataLane("python", reference_lane, why="no compiler")
    )
    told = run("simulate", "--seed", "3", "--compiled")
    assert told.exit_code == 2
    assert "--compiled is not possible: no compiler" in told.output


@pytest.mark.usefixtures("faked")
def test_a_campaign_for_scripts_is_one_line_of_json_for_each_seed() -> None:
    lines = [
        json.loads(line)
        for line in run("simulate", "--seeds", "4", "--workers", "1", "--json").output.splitlines()
    ]
    assert [line["seed"] for line in lines] == [0, 1, 2, 3]
    assert [line["ok"] for line in lines] == [True, True, True, False]


@pytest.mark.usefixtures("faked")
def test_one_seed_is_replayed_with_its_story() -> None:
    told = run("simulate", "--seed", "3")
    assert told.exit_code == 1
    assert "story of 3" in told.output
    assert f"{3:064x}" in told.output
    assert "story" not in run("simulate", "--seed", "1", "--quiet").output


@pytest.mark.usefixtures("faked")
def test_the_alarm_fails_when_a_broken_rule_goes_unnoticed() -> None:
    found = run("simulate", "--alarm", "--without", "all-ack", "--seeds", "3", "--workers", "1")
    assert found.exit_code == 0
    assert "found by seed 2, after runs: none, none, 1:" in found.output
    missed = run("simulate", "--alarm", "--without", "fence", "--seeds", "3", "--workers", "1")
    assert missed.exit_code == 1
    assert "NOT FOUND in 3 runs" in missed.output


@pytest.mark.usefixtures("faked")
def test_the_alarm_fails_when_a_lie_goes_unnoticed_for_too_long() -> None:
    missed = run("simulate", "--alarm", "--lie", "get-absent", "--seeds", "3", "--workers", "1")
    assert missed.exit_code == 1
    assert "get-absent" in missed.output


def test_unknown_rules_are_refused_with_the_known_ones() -> None:
    told = run("simulate", "--without", "fnce")
    assert told.exit_code == 2
    assert "fence" in told.output
    listed = run("simulate", "--rules").output
    assert all(name in listed for name in [*RULES, *LIES])
    assert "cas-twice" in run("simulate", "--lie", "none").output


@pytest.mark.slow
def test_two_processes_find_the_same_as_one() -> None:
    """Real runs: the verdicts do not depend on who computes them, nor does the trace."""

    def hashes(workers: int) -> dict[int, str]:
        told = run("simulate", "--seeds", "3", "--workers", str(workers), "--json")
        return {line["seed"]: line["trace_hash"] for line in map(json.loads, told.output.splitlines())}

    alone = hashes(1)
    assert alone == hashes(2)
    assert len(set(alone.values())) == 3


# -- status


def member(uuid: str, **changes: object) -> dict[str, object]:
    return {"uuid": uuid, "name": f"name of {uuid}", "host": "127.0.0.1", "client_port": 5701, "member_port": 5751} | {
        "lite": False, "group": "", "master": uuid == "a", "primaries": 100, "backups": 71, **changes
    }  # fmt: skip


MOVES: dict[str, object] = dict.fromkeys(("active", "queued", "completed", "failed", "delayed_ms"), 0)
MOVES["process"] = None


def own(uuid: str, **changes: object) -> dict[str, object]:
    """What a member of two says of itself."""
    return {
        "uuid": uuid,
        "name": f"name of {uuid}",
        "cluster": "dev",
        "cluster_id": "c",
        "master": "a",
        "leaving": False,
        "desired_state": "",
        "leave_blocker": "",
        "cluster_state": "active",
        "shutting_down": False,
        "missing_members": [],
        "members": [member("a"), member("b", client_port=5702)],
        "table": {"version": 12, "stamp": "00ff"},
        "topology": {"major": 3, "minor": 12},
        "transactions": {"running": 0, "oldest_ms": 0, "orphans": 0},
        "partitions": {"count": 271, "without_copy": 0},
        "migrations": MOVES,
        "entries": {"primary": 1500, "all": 3000},
        "safe": True,
        "unsafe_reason": "",
        **changes,
    }


def answering(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, object]) -> None:
    def ask(address: str, credentials: Credentials) -> MemberStatus:
        answer = answers[address]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return statuses.status(answer)

    monkeypatch.setattr(inspection, "ask", ask)


def test_status_shows_members_and_safety(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"127.0.0.1:5701": own("a"), "127.0.0.1:5702": own("b", desired_state="leave")})
    told = run("status")
    assert told.exit_code == 0
    for part in (
        "cluster dev",
        "topology 3.12",
        "partitions 271",
        "safe",
        "name of a",
        "master",
        "leaving",
        "3,000",
    ):
        assert part in told.output
    assert "not safe" not in told.output


def test_status_shows_transactions_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    one = own("a", transactions={"running": 3, "oldest_ms": 1000, "orphans": 0})
    other = own("b", transactions={"running": 4, "oldest_ms": 35_200, "orphans": 2})
    answering(monkeypatch, {"127.0.0.1:5701": one, "127.0.0.1:5702": other})
    told = " ".join(run("status").output.split())
    assert "transactions: 7 run, the oldest for 35 s" in told
    assert "the coordinators of 2 of them are gone" in told


def test_status_names_who_kept_everybody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"longest_in_last_minute_ms": 250.4, "longest_ms": 900.0}
    short = {"longest_in_last_minute_ms": 99.0, "longest_ms": 900.0}
    members = {"127.0.0.1:5701": own("a", stalls=long), "127.0.0.1:5702": own("b", stalls=short)}
    answering(monkeypatch, members)
    told = run("status").output
    assert "name of a was blocked for 250 ms within the last minute (longest since its start: 900 ms)" in told
    assert "name of b was blocked" not in told


def test_status_names_who_does_without_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = {"lane": "compiled", "lane_reason": "", "sockets": "poll", "sockets_reason": ""}
    slow = {"lane": "python", "lane_reason": "x", "sockets": "loop", "sockets_reason": "y"}
    plain = fast | {"sockets_reason": "z"}
    members = {"127.0.0.1:5701": own("a", **fast), "127.0.0.1:5702": own("b", **slow)}
    answering(monkeypatch, members)
    told = " ".join(run("status").output.split())
    assert "name of b runs the data lane uncompiled: x" in told
    assert "name of b serves sockets by the event loop: y" in told
    assert "name of a has" not in told
    assert "name of a serves" not in told
    answering(monkeypatch, members | {"127.0.0.1:5701": own("a", **plain)})
    assert "name of a serves sockets by a poll in plain Python: z" in " ".join(run("status").output.split())


def test_status_shows_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    process = {"planned": 90, "completed": 12, "failed": 1, "remaining": 77, "elapsed_ms": 2500}
    seen = own(
        "a",
        cluster_state="frozen",
        missing_members=["third"],
        migrations=MOVES | {"process": process, "delayed_ms": 30_000},
        partitions={"count": 271, "without_copy": 4},
    )
    kept = own("b", desired_state="leave", leaving=True, leave_blocker="the cluster is frozen")
    answering(monkeypatch, {"127.0.0.1:5701": seen, "127.0.0.1:5702": kept})
    told = run("status").output
    for part in (
        "frozen",
        "missing: third; their slots are kept",
        "12 of 90 migrations done, 1 failed, 2.5 s",
        "restored elsewhere in 30 s",
        "4 partitions have no copy",
        "name of b cannot leave yet: the cluster is frozen",
    ):
        assert part in told
    plain = json.loads(run("status", "--json").output)
    assert plain["cluster_state"] == "frozen"
    assert plain["missing_members"] == ["third"]
    assert plain["rebalance"] == process
    assert plain["delayed_ms"] == 30_000
    answering(monkeypatch, dict.fromkeys(("127.0.0.1:5701", "127.0.0.1:5702"), own("a", shutting_down=True)))
    assert "ending" in run("status").output


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (own("b", safe=False, unsafe_reason="3 partitions lack a backup"), "3 partitions lack a backup"),
        (own("b", table={"version": 13, "stamp": "01ff"}), "members have 2 different partition tables"),
        (OSError("refused"), "1 of 2 members do not answer"),
    ],
)
def test_status_is_safe_only_when_every_member_says_so(
    monkeypatch: pytest.MonkeyPatch, answer: object, why: str
) -> None:
    answering(monkeypatch, {"127.0.0.1:5701": own("a"), "127.0.0.1:5702": answer})
    told = json.loads(run("status", "--json").output)
    assert told["safe"] is False
    assert told["unsafe_reason"] == why
    assert f"not safe: {why}" in run("status").output


def test_status_for_scripts_has_every_member_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"127.0.0.1:5701": own("a"), "127.0.0.1:5702": OSError("refused")})
    told = json.loads(run("status", "--json").output)
    assert [each["uuid"] for each in told["members"]] == ["a", "b"]
    assert told["members"][0]["status"]["entries"] == {"primary": 1500, "all": 3000}
    assert told["members"][1]["status"] is None
    assert told["members"][1]["error"] == "refused"


def test_status_takes_an_address_as_all_commands_do(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"h:1": own("a"), "127.0.0.1:5701": own("a"), "127.0.0.1:5702": own("b")})
    for address in (("h:1",), ("-a", "h:1"), ("--address", "h:1"), ("h:1", "-a", "h:1")):
        assert run("status", *address).exit_code == 0, address
    told = run("status", "h:1", "-a", "h:2")
    assert told.exit_code == 2
    assert "two addresses: h:1 and -a h:2" in told.output


def test_every_command_that_asks_a_cluster_knows_a() -> None:
    asking = [
        command
        for command in all_commands(holdfast).values()
        if any("--address" in parameter.opts for parameter in command.params)
    ]
    assert {command.name for command in asking} >= {"status", "verify", "read", "load", "changes"}
    for command in asking:
        assert any("-a" in parameter.opts for parameter in command.params), command.name


def test_status_of_nobody_fails_in_one_line() -> None:
    told = run("status", "127.0.0.1:1")
    assert told.exit_code == 4
    assert told.output.startswith("Error: ")
    assert len(told.output.splitlines()) == 1


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Credentials] = []

    def ask(address: str, credentials: Credentials) -> MemberStatus:
        seen.append(credentials)
        return statuses.status(own("a"))

    monkeypatch.setattr(inspection, "ask", ask)
    run("status", "--json", "--username", "u", environ={"HOLDFAST_SECURITY_PASSWORD": "geheim"})
    assert seen[0] == Credentials("u", "geheim", None)
    assert "geheim" not in repr(seen[0])


# -- the jobs


def test_spark_that_is_missing_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("holdfast.cli.spark.find_spec", lambda name: None if name == "pyspark" else True)
    for command, extra in (("verify --spark", "spark"), ("demo", "spark,demo"), ("export --to x", "spark")):
        told = run(*command.split())
        assert told.exit_code == 2
        assert f"pip install '.[{extra}]' in the source folder" in told.output
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = run("verify", "--spark", environ={"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)})
    assert told.exit_code == 2
    assert "Spark needs Java 17 or newer" in told.output


JOBS = (
    "load pyproject.toml --map m --key id", "read m", "verify --spark", "export --to x", "export verify x",
    "changes m", "analyse .", "plan --spark --members 3", "campaign --seeds 0..1", "demo",
)  # fmt: skip

WITHOUT_PYSPARK = """
import sys
from importlib.machinery import PathFinder
from click.testing import CliRunner
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.split(".")[0] == "pyspark" else find(name, path, target)
)
"""
TELL = """
from tests.command_lines import group_of
for command in sys.argv[1:]:
    told = CliRunner().invoke(group_of(command.split()), command.split())
    print(told.exit_code, " | ".join(told.output.splitlines()), type(told.exception).__name__)
"""


def tell_jobs(before: str, path: list[Path]) -> list[str]:
    told = subprocess.run(
        [sys.executable, "-c", before + TELL, *JOBS], capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, *sys.path]))},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


def test_without_pyspark_every_job_says_so_in_one_line() -> None:
    for command, line in zip(JOBS, tell_jobs(WITHOUT_PYSPARK, []), strict=True):
        extra = "spark,demo" if command == "demo" else "spark"
        missing = f"pyspark is not installed: pip install '.[{extra}]' in the source folder"
        expected = f"2 Error: this runs on Spark, and {missing} SystemExit"
        assert line == expected, command


def test_with_another_pyspark_every_job_names_its_version(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "version.py").write_text("__version__: str = '4.0.1'\n", encoding="utf-8")
    needed = "PySpark 4.0.1 is installed, and Holdfast needs 4.1 or newer, below 5: "
    needed += "pip install '.[spark]' in the source folder"
    for command, line in zip(
        JOBS, tell_jobs("import sys\nfrom click.testing import CliRunner\n", [tmp_path]), strict=True
    ):
        assert line == f"2 Error: {needed} SystemExit", command
    imported = subprocess.run(
        [sys.executable, "-c", "import pyspark_holdfast"], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [tmp_path, *sys.path]))},
    )  # fmt: skip
    assert imported.stderr.splitlines()[-1] == f"ImportError: {needed}"


def test_the_versions_of_pyspark_that_will_do_are_those_of_the_package() -> None:
    from holdfast.spark import OLDEST, TOO_NEW

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = f"pyspark>={'.'.join(map(str, OLDEST))},<{'.'.join(map(str, TOO_NEW))}"
    assert wanted in project["project"]["optional-dependencies"]["spark"]


def test_what_is_wrong_with_an_export_is_said_before_spark_starts(tmp_path: Path) -> None:
    told = run("export", "flights")
    assert (told.exit_code, "--to" in told.output) == (2, True)
    for command in (["export", "verify"], ["restore"]):
        told = run(*command, str(tmp_path))
        assert (told.exit_code, "is no export" in told.output) == (1, True)
    (tmp_path / "entries").mkdir()
    told = run("restore", str(tmp_path))
    assert (told.exit_code, "did not finish" in told.output) == (1, True)
    told = run("restore", str(tmp_path), "--rename", "flights")
    assert (told.exit_code, "give OLD=NEW" in told.output) == (2, True)
    told = run("verify", "--member", "a", "--files", "b")
    assert (told.exit_code, "not both" in told.output) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--rows", "0"],
        ["demo", "--members", "1"],
        ["chaos", "--rounds", "0"],
        ["chaos", "--minutes", "0"],
        ["chaos", "--nemesis", "rain"],
    ],
)
def test_jobs_refuse_numbers_that_make_no_sense(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_the_nemeses_that_are_offered_are_those_that_there_are() -> None:
    assert set(NEMESES) == set(nemeses.NEMESES)


def test_chaos_of_clocks_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemeses, "FAKETIME", ("/nowhere", "faketime/libfaketimeMT.so.1"))
    told = run("chaos", "--nemesis", "clock")
    assert (told.exit_code, "apt-get install libfaketime" in told.output) == (1, True)


def test_a_reader_that_goes_away_is_no_error() -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    code = "from holdfast.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "config"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    )
    assert process.stdout
    process.stdout.close()
    assert process.stderr
    told = process.stderr.read()
    process.stderr.close()
    process.wait(120)
    assert b"Traceback" not in told
    assert b"Exception ignored" not in told


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (
            ("zone", "create", "z", "--consistency", "ha", "--placement", "even", "--adjustment", "cancel"),
            4,
            "no member",
        ),
        (("zone", "create", "z", "--consistency", "HIGH_AVAILABILITY"), 2, "is not one of 'strong', 'ha'"),
        (
            ("zone", "create", "z", "--scale-up-s", "soon"),
            2,
            "is no time: write a number and one of the units ms, s, min, h, d",
        ),
        (("zone", "alter", "z", "--scale-down-s", "never"), 4, "no member"),
        (("zone", "alter", "z"), 2, "name at least one setting to alter"),
        (("zone", "list"), 4, "no member"),
        (("metastore", "put", "k", "v", "--if-revision", "-1"), 2, "--if-revision"),
        (("metastore", "get", "k"), 4, "no member"),
        (("metastore", "status"), 4, "no member"),
    ],
)
def test_orders_about_zones_fail_with_a_reason_and_a_status(
    arguments: tuple[str, ...], status: int, why: str
) -> None:
    told = run(*arguments, "-a", "127.0.0.1:1")
    assert told.exit_code == status
    assert why in told.output


# -- credentials


def test_a_password_is_piped_in_and_a_verifier_comes_out() -> None:
    told = CliRunner().invoke(holdfast, ["credentials"], input="correct horse\n", catch_exceptions=False)
    verifier = read_verifier(told.output.strip(), "x")
    assert isinstance(verifier, PasswordVerifier)
    assert verifier.matches("correct horse")
    again = CliRunner().invoke(holdfast, ["credentials"], input="correct horse\n", catch_exceptions=False)
    assert again.output != told.output, "each has a salt of its own"
    nothing = CliRunner().invoke(holdfast, ["credentials"], input="", catch_exceptions=False)
    assert nothing.exit_code == 2
    assert "there is no password" in nothing.output


def test_a_new_token_comes_with_its_verifier() -> None:
    told = run("credentials", "--token").output.split()
    token, verifier = told[1], read_verifier(told[3], "x")
    assert isinstance(verifier, TokenVerifier)
    assert verifier.matches(token.encode())
    assert len(token) > 40


def test_secrets_of_users_are_no_flags() -> None:
    told = run("start", "--set", "users.ada.passwords=mine")
    assert told.exit_code == 2
    assert "--set users.ada.passwords is not allowed: others can see flags" in told.output
    assert "mine" not in told.output
