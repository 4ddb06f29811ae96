"""`@operator_command` and the renderer: options, JSON, tables and exit statuses of any command."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator
from typing import Annotated, Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import operator_command as module
from holdfast.cli.answers import Answer, Described, MemberResult
from holdfast.cli.exit_statuses import combined, status_of
from holdfast.cli.operator_command import Answers, Call, answers_of, finish, operator_command
from holdfast.cli.rendering import Shown, as_json, table_of
from holdfast.core.model.result_columns import column, duration, size
from holdfast.errors import ConfigError, Denied, NotReady, Standing, Unknown, Unreachable


class Row(msgspec.Struct):
    name: Annotated[str, column("who", styles={"b": "bold red"})]
    age_ms: Annotated[int, column("age", "ms")]
    data: bytes = b""


class Found(Answer):
    """What was found."""

    decides = "good"

    good: bool
    rows: Annotated[list[Row], column("rows")] = msgspec.field(default_factory=list)

    def view(self) -> Iterable[Shown]:
        yield table_of(self.rows, Row)

    def notes(self) -> Iterable[str]:
        yield "look again"


def run(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@operator_command(name="look", timeout_s=5, confirms=True)
@click.argument("name")
@click.option("--level", type=int, default=1)
def look(call: Call, name: str, *, level: int) -> Found:
    """Look."""
    call.confirm("Really?")
    assert str(call.addresses[0]) == "127.0.0.1:5701"
    return Found(
        good=level > 0, rows=[Row(name, round(call.timeout_s * 1000)), Row("b", 90_061_000, b"\x07")]
    )


def test_one_declaration_brings_all_options() -> None:
    told = run(look, "a", "--yes", "--timeout", "250ms")
    assert (told.exit_code, told.stderr) == (0, "look again\n")
    assert [line.split() for line in told.stdout.splitlines()] == [
        ["who", "age"],
        ["a", "250ms"],
        ["b", "1d1h"],
    ]
    found = json.loads(run(look, "a", "--yes", "--json", "--level", "0").stdout)
    assert found["rows"][1] == {"name": "b", "age_ms": 90_061_000, "data": "07"}


def test_the_field_that_decides_makes_the_status() -> None:
    assert run(look, "a", "--yes", "--level", "0").exit_code == 1
    assert run(look, "a", "--yes", "--timeout", "5 minutes").exit_code == 2
    assert CliRunner().invoke(look, ["a"], input="n\n").exit_code == 1


def test_own_options_come_first_in_the_help() -> None:
    told = run(look, "--help").output
    places = [told.index(word) for word in ("--level", "--timeout", "--yes", "--json", "--address")]
    assert places == sorted(places)
    assert "--tls" not in told


def results(*names: Any) -> Generator[MemberResult, None, None]:
    for number, name in enumerate(names):
        yield MemberResult(str(number), name, "x")


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (["done", "done"], 0),
        (["done", "accepted"], 3),
        (["accepted", "failed"], 1),
        (["done", "unreachable"], 1),
        (["unreachable", "unreachable"], 4),
        ([], 0),
    ],
)
def test_several_results_make_one_status(names: list[str], status: int) -> None:
    assert finish(results(*names), as_json=True) == status


def test_a_generator_may_name_the_status_itself() -> None:
    def found() -> Generator[MemberResult, None, int]:
        yield from results("done")
        return 4

    assert finish(found(), as_json=True) == 4


@pytest.mark.parametrize("caught", [True, False])
def test_ctrl_c_while_an_answer_is_printed_reaches_the_command(
    caught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Printing is most of what `cluster watch` does: it must end with 0 there, too."""

    def watch() -> Generator[MemberResult, None, None]:
        try:
            yield from results("done", "done")
        except KeyboardInterrupt:
            if not caught:
                raise

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "tell_json", interrupted)
    if caught:
        assert finish(watch(), as_json=True) == 0
    else:
        with pytest.raises(KeyboardInterrupt):
            finish(watch(), as_json=True)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), 2),
        (Standing("x"), 3),
        (Unreachable("x"), 4),
        (NotReady("x"), 1),
        (Denied("x"), 1),
        (Unknown("x"), 3),
        (OSError("x"), 1),
    ],
)
def test_every_error_has_a_status(error: BaseException, status: int) -> None:
    assert status_of(error) == status


def test_statuses_are_combined() -> None:
    assert combined([3, 3]) == 3
    assert combined([0, 3, 4]) == 1


def one() -> Found: ...


def either() -> Found | MemberResult: ...


def many() -> Iterator[Found]: ...


def described() -> Described[Found]: ...


def test_annotations_name_the_answers() -> None:
    assert answers_of(one) == Answers((Found,), False)
    assert answers_of(either) == Answers((Found, MemberResult), False)
    assert answers_of(many) == Answers((Found,), True)
    assert answers_of(described) == Answers((Found,), False)


def test_numbers_that_json_lacks_are_texts() -> None:
    assert as_json({"a": [float("nan"), {"b": float("-inf")}], "c": 1.5}) == (
        '{"a": ["NaN", {"b": "-Infinity"}], "c": 1.5}'
    )


@pytest.mark.parametrize(("number", "text"), [(512, "512 B"), (1536, "1.5 KiB"), (3 * 2**40, "3.0 TiB")])
def test_a_size_for_people(number: int, text: str) -> None:
    assert size(number) == text


def test_a_cell_has_the_colour_of_its_value() -> None:
    table = table_of([Row("b", 0)], Row)
    [cell] = table.columns[0].cells
    assert str(getattr(cell, "style", "")) == "bold red"
    assert duration(0) == "0s"
