"""Whole groups against etcd's: message by message where no configuration changes, by outcome where one does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.core.raft.datadriven import Case, cases, files
from tests.core.raft.interaction import Play

LOGGED = re.compile(r"^\s*(DEBUG|INFO|WARN|ERROR|FATAL) ")
SWITCHED = re.compile(r"^\s*INFO (\d+) track_configuration to configuration (.*)$")


def _changes_configuration(path: Path) -> bool:
    return "\npropose-conf-change" in path.read_text()


def _without_logs(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in lines if not LOGGED.match(line) and line != "ok"]


def _files(*, changes: bool) -> list[object]:
    return [
        one
        for one in files("testdata")
        if (path := one.values[0]) is None or _changes_configuration(path) == changes  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("path", _files(changes=False))
def test_message_by_message_it_does_what_etcd_does(path: Path) -> None:
    play = Play()
    for case in cases(path):
        said = play.handle(case)
        assert _without_logs(said) == _without_logs(case.expected), f"{path.name}:{case.line} {case.command}"


def _outcome(lines: list[str]) -> list[tuple[str, ...]]:
    """Of a `raft-state`: each replica's role, term and leader. Who is a voter already is seen earlier here: when the
    change is in the log, and not when it is applied.
    """
    return [tuple(re.sub(r" \((Non-)?Voter\)", "", line).split()) for line in lines]


@pytest.mark.parametrize("path", _files(changes=True))
def test_where_the_configuration_changes_it_comes_to_the_same_as_etcd(path: Path) -> None:
    play = Play()
    configured: dict[str, str] = {}
    settled = False
    """Whether everything that was sent has arrived: before, a change counts earlier here than there."""
    for case in cases(path):
        said = play.handle(case)
        if case.command == "stabilize":
            settled = not case.positional
        if case.command == "raft-state" and settled:
            assert _outcome(said) == _outcome(case.expected), f"{path.name}:{case.line}"
        for line in case.expected:
            if track_configuration := SWITCHED.match(line):
                configured[track_configuration[1]] = track_configuration[2]
    everybody = Case(0, "stabilize", {}, [], [])
    play.handle(everybody)
    assert {name: str(play.nodes[name].group.configuration) for name in configured} == configured
