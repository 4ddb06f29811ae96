"""Reads files of cases in the form that etcd's Raft library uses: a command, its input, `----`, what it must say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("RAFT_TESTDATA", HERE.parent / "shared" / "raft_testdata"))
"""Where the cases lie: beside the checkout, or where the environment says."""


@dataclass
class Case:
    """One command of a file."""

    line: int
    command: str
    arguments: dict[str, list[str]]
    """By name, in order; positional ones have no values."""
    input: list[str]
    expected: list[str]

    @property
    def positional(self) -> list[str]:
        return [name for name, values in self.arguments.items() if not values]

    def value(self, name: str, default: str = "") -> str:
        return self.arguments.get(name, [default])[0]


def files(folder: str) -> list[object]:
    """The files of a folder as parameters of a test; one that is skipped when the folder is not there."""
    found = sorted((FOLDER / folder).glob("*.txt"))
    if not found:
        why = f"the cases of etcd's Raft are not in {FOLDER} (RAFT_TESTDATA)"
        return [pytest.param(None, marks=pytest.mark.skip(reason=why), id="absent")]
    return [pytest.param(path, id=path.stem) for path in found]


def cases(path: Path) -> Iterator[Case]:
    lines = path.read_text().splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        start, text = at, lines[at]
        while text.endswith("\\"):
            at += 1
            text = text[:-1] + lines[at]
        at += 1
        given: list[str] = []
        while lines[at] != "----":
            given.append(lines[at])
            at += 1
        at += 1
        expected: list[str] = []
        if at < len(lines) and lines[at] == "----":
            at += 1
            while lines[at : at + 2] != ["----", "----"]:
                expected.append(lines[at])
                at += 1
            at += 2
        else:
            while at < len(lines) and lines[at]:
                expected.append(lines[at])
                at += 1
        command, arguments = _arguments(text)
        yield Case(start + 1, command, arguments, given, expected)


def _arguments(text: str) -> tuple[str, dict[str, list[str]]]:
    command, _, rest = text.strip().partition(" ")
    arguments: dict[str, list[str]] = {}
    for name, given, listed, single in re.findall(r"([^\s=()]+)(=(?:\(([^)]*)\)|([^\s()]+)))?", rest):
        values = [one for one in re.split(r"[\s,]+", listed) if one] if listed else [single] if single else []
        arguments[name] = values or ([""] if given else [])
    return command, arguments
