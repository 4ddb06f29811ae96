"""Whole groups against etcd's: message by message where no configuration changes, by outcome where one does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.core.consensus.datadriven import cases, files
from tests.core.consensus.interaction import Play

LOGGED = re.compile(r"^\s*(DEBUG|INFO|WARN|ERROR|FATAL) ")
OUTCOMES = {"raft-state", "raft-log"}


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
