"""No command takes a URI for a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.command_lines import group_of

from holdfast.cli.main import holdfast
from holdfast.cli.paths import LocalPath
from holdfast.config.loading import load
from holdfast.config.local_paths import local_path, uri_reason
from holdfast.errors import ConfigError

URIS = [
    "s3://bucket/x",
    "s3:/bucket",
    "S3:bucket",
    "gs://b",
    "hdfs://h:1/x",
    "abfss://c@a/x",
    "http://h/x",
    "what://x",
]


@pytest.mark.parametrize("uri", [*URIS, "file:///backup", "file:backup"])
def test_a_uri_is_no_local_path(uri: str) -> None:
    for path in (uri, Path(uri)):
        with pytest.raises(ConfigError, match="is a URI"):
            local_path(path)


def test_an_error_says_what_works() -> None:
    assert "only local paths work here" in uri_reason("s3://bucket")
    assert "give the path itself, '/backup/monday'" in uri_reason("file:///backup/monday")
    assert "give the path itself, 'monday'" in uri_reason("file:monday")


@pytest.mark.parametrize(
    "path",
    [
        "/backup/s3:/x",
        "backup",
        "./s3:/x",
        "C:/data",
        "C:\\data",
        "monday:noon",
        "2026-01-01T10:00",
        "a:b/c",
        "-",
    ],
)
def test_a_path_with_a_colon_is_a_path(path: str) -> None:
    assert local_path(path) == path


def _commands(
    command: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name in sorted({*command.list_commands(click.Context(command)), *command.commands}):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from _commands(inner, (*words, name))
    else:
        yield words, command


def test_every_path_of_every_command_is_looked_at() -> None:
    seen = set()
    for words, command in _commands(holdfast):
        for parameter in command.params:
            kinds = parameter.type.types if isinstance(parameter.type, click.Tuple) else [parameter.type]
            named = str(parameter.metavar).rstrip(".").split(" ")[-1] in ("DIR", "FILE")
            if named or any(isinstance(kind, click.Path) for kind in kinds):
                assert any(isinstance(kind, LocalPath) for kind in kinds), (words, parameter.name)
                seen.add((*words, parameter.name))
    assert {("backup", "folder"), ("analyse", "directories"), ("changes", "to")} <= seen


@pytest.mark.parametrize(
    "arguments",
    [
        ["backup", "--to", "s3://bucket/monday"],
        ["restore", "s3://bucket/monday"],
        ["export", "verify", "s3://bucket/monday"],
        ["export", "--to", "s3://bucket/monday"],
        ["read", "m", "--to", "s3://bucket/m.csv"],
        ["changes", "m", "--to", "parquet", "s3://bucket/m"],
        ["analyse", "s3://bucket/m1"],
        ["verify", "--files", "s3://bucket/m1", "--files", "m2"],
        ["journal", "verify", "s3://bucket/m1"],
        ["simulate", "--seed", "1", "--record", "s3://bucket/record"],
    ],
    ids=" ".join,
)
def test_a_command_refuses_a_uri_and_writes_nothing(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(group_of(arguments), arguments)
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "'s3://bucket/" in done.output
    assert "is a URI, and only local paths work here" in done.output


def test_a_member_keeps_its_files_in_no_uri() -> None:
    with pytest.raises(ConfigError, match=r"persistence\.directory: 's3://bucket' is a URI"):
        load(None, {"HOLDFAST_PERSISTENCE_DIRECTORY": "s3://bucket"})
