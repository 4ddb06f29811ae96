"""Builds of Holdfast beside the one under test, each in a folder of its own: an earlier commit's wheel, and one that
says of itself that it is newer, with more than this one knows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.model.levels import HIGHEST, LOWEST, SEGMENT_FORMATS
from holdfast_lab.processes.fork_server import COMMAND

ROOT = Path(__file__).parent.parent.parent
MECHANISM = "src/holdfast/core/model/levels.py"
"""A commit that has this file can be mixed with others."""
DISTRIBUTION = "holdfast-grid"
FUTURE, PAST = "0.99.0", "0.0.1"
NEXT = HIGHEST + 1
"""The level that only the newer build can do."""
FORMAT = max(SEGMENT_FORMATS.values()) + 1
CHANGES: dict[str, list[tuple[str, str]]] = {
    "core/model/levels.py": [
        (f"HIGHEST: Final = {HIGHEST}\n", f"HIGHEST: Final = {NEXT}\n"),
        ("SEGMENT_FORMATS: Final = {", f"SEGMENT_FORMATS: Final = {{{NEXT}: {FORMAT}, "),
    ],
    "config/sharing.py": [
        (
            "LATER: frozenset[str] = frozenset(\n    {\n",
            'LATER: frozenset[str] = frozenset(\n    {\n        "maps.colour",\n',
        ),
    ],
    "config/schema.py": [
        (
            '    """Settings of one map, or \'default\' for all maps without a table of their own."""\n',
            (
                '    """Settings of one map, or \'default\' for all maps without a table of their own."""\n\n'
                '    colour: str = "none"\n'
            ),
        ),
    ],
    "core/messages.py": [
        (
            "class LevelWanted(",
            "class Waved(msgspec.Struct, frozen=True, array_like=True, tag=120):\n    how: str\n\n\nclass LevelWanted(",
        ),
        ("    | LevelWanted\n", "    | LevelWanted\n    | Waved\n"),
        ("    room: Room = Room.PLENTY\n", '    room: Room = Room.PLENTY\n    mood: str = ""\n'),
    ],
    "core/member.py": [
        (
            "    m.LevelWanted: lambda",
            (
                '    m.Waved: lambda member, sender, it: member.out.note("waved at", by=sender, how=it.how),\n'
                "    m.LevelWanted: lambda"
            ),
        ),
    ],
    "core/membership/membership.py": [
        ("    JoinRequest,\n    ViewDecided,\n", "    JoinRequest,\n    ViewDecided,\n    Waved,\n"),
        (
            "            self.intents.short.get(self.me, Room.PLENTY),\n        )\n",
            (
                '            self.intents.short.get(self.me, Room.PLENTY),\n            "well",\n        )\n'
                f"        if self._out.does({NEXT}):\n"
                "            for info in self.view.members:\n"
                "                if info.uuid != self.me:\n"
                '                    self._out.send(info.uuid, Waved("both hands"))\n'
            ),
        ),
    ],
}
"""What makes this build a newer one: a level more, with a kind of message and a format of segments that come with it;
a field of a message that does not wait for it; and a setting that all members share.
"""


BEFORE: dict[str, list[tuple[str, str]]] = {
    "core/model/levels.py": [
        (f"HIGHEST: Final = {HIGHEST}\n", f"HIGHEST: Final = {LOWEST}\n"),
    ],
    "core/model/journal_entries.py": [("Entry = Wrote | WrotePuts |", "Entry = Wrote |")],
    "wire/bounds.py": [
        (
            "        for puts in section.puts:\n",
            '        _require(not section.puts, "packed")\n        for puts in ():\n',
        ),
        (
            "        rows = len(entries.keys)\n",
            '        rows = len(entries.keys)\n        _require(not entries.sizes, "packed")\n',
        ),
    ],
}
"""What makes this build an older one, which can do the first level only: it cannot read what is packed."""


def command(folder: Path) -> list[str]:
    """The program `holdfast` of the build in this folder."""
    return ["env", f"PYTHONPATH={folder}", *COMMAND]


def newer_build(folder: Path) -> Path:
    """This build, changed into a newer one."""
    return _changed(folder, CHANGES, FUTURE)


def older_build(folder: Path) -> Path:
    """This build, changed into an older one."""
    return _changed(folder, BEFORE, PAST)


def _changed(folder: Path, all_changes: dict[str, list[tuple[str, str]]], version: str) -> Path:
    package = folder / "holdfast"
    shutil.copytree(ROOT / "src" / "holdfast", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in all_changes.items():
        file = package / name
        text = file.read_text(encoding="utf-8")
        for before, after in changes:
            assert text.count(before) == 1, f"{name} does not have {before!r} once any more: change it here"
            text = text.replace(before, after)
        file.write_text(text, encoding="utf-8")
    _called(folder, version)
    return folder


def _called(folder: Path, version: str) -> None:
    """Let the build in this folder report this version."""
    (folder / "holdfast" / "version.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)


def earlier_commit() -> str:
    """The newest commit before this one whose build can be mixed with this one. Skips the test when there is none."""
    if shutil.which("git") is None or _git("rev-parse", "HEAD").returncode:
        pytest.skip("no git history here: there is no earlier commit to build")
    listed = _git("rev-list", "--first-parent", "--max-count=200", "HEAD~1")
    for commit in listed.stdout.decode().split():
        if _git("cat-file", "-e", f"{commit}:{MECHANISM}").returncode == 0:
            return commit
    pytest.skip("no commit before this one has feature levels")


def last_below(level: int) -> str:
    """The newest commit whose build can do lower feature levels only. Skips the test when there is none."""
    listed = _git("rev-list", "--first-parent", "HEAD", "--", MECHANISM).stdout.decode().split()
    for commit, raised in zip(listed[1:], listed, strict=False):
        shown = _git("show", f"{commit}:{MECHANISM}").stdout.decode()
        highest = re.search(r"^HIGHEST: Final = (\d+)$", shown, re.MULTILINE)
        if highest is not None and int(highest[1]) < level:
            return f"{raised}^"
    pytest.skip(f"the git history here has no build below level {level}")


def build_of(commit: str, folder: Path) -> Path:
    """The wheel of a commit, built and installed into a folder, without a network. Its hot path is plain Python: no
    compiler is asked.
    """
    source, wheels, installed = folder / "source", folder / "wheels", folder / "installed"
    source.mkdir(parents=True)
    archive = _git("archive", commit)
    assert archive.returncode == 0, archive.stderr.decode()
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    quiet = ["--disable-pip-version-check", "--no-index", "--quiet"]
    environment = {**os.environ, "CC": "false", "PIP_NO_CACHE_DIR": "1"}
    for words in (
        ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)],
        ["install", "--no-deps", "--find-links", str(wheels), "--target", str(installed), DISTRIBUTION],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words, *quiet],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return installed
