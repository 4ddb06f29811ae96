"""What `--json` prints is what docs/schemas says: looked at whenever a test lets a command print some.

`watch_commands` is called once, by conftest.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator
from tests.command_lines import group_of

from holdfast.cli.exit_statuses import ALIASES, MISUSED
from holdfast.cli.lazy_group import LazyGroup

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"


def path_of(words: Sequence[str]) -> str:
    """The words of the command that is called so."""
    command: click.Command = group_of(words)
    path: list[str] = []
    for word in words:
        inner = (
            command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        )
        if inner is None:
            break
        path.append(word)
        command = inner
    return ALIASES.get(" ".join(path), " ".join(path))


@cache
def schema_of(path: str) -> Draft202012Validator:
    """The schema of what this command prints."""
    text = (SCHEMAS / f"{path.replace(' ', '-')}.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))


def answers(output: str) -> list[Any]:
    """All that was printed: one thing, perhaps over several lines, or one a line."""
    if not output.strip():
        return []
    try:
        return [json.loads(output)]
    except ValueError:
        return [json.loads(line) for line in output.splitlines()]


def check(words: Sequence[str], output: str) -> list[Any]:
    """What a command printed, if that is what its schema says. Raises AssertionError."""
    path = path_of(words)
    found = answers(output)
    for answer in found:
        wrong = [f"{error.json_path}: {error.message}" for error in schema_of(path).iter_errors(answer)]
        assert not wrong, f"docs/schemas: holdfast {path} --json: {'; '.join(wrong)[:2000]}"
    return found


def _has_answered(result: Result) -> bool:
    """Whether the command came so far: what is wrong with a call is told in words."""
    failed = result.exception is not None and not isinstance(result.exception, SystemExit)
    return result.exit_code != MISUSED and not failed


def watch_commands() -> None:
    """From now on what commands print in tests is compared with the schemas."""
    invoke = CliRunner.invoke

    @wraps(invoke)
    def watched(self: CliRunner, cli: click.Command, args: Any = None, *rest: Any, **named: Any) -> Result:
        result = invoke(self, cli, args, *rest, **named)
        words = args.split() if isinstance(args, str) else list(args or ())
        if isinstance(cli, LazyGroup) and "--json" in words and _has_answered(result):
            check([str(word) for word in words], result.stdout)
        return result

    CliRunner.invoke = watched  # type: ignore[method-assign]
