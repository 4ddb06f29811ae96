"""`holdfast zone`: what becomes of the partitions of a zone."""

from __future__ import annotations

import json
import sys

import click
import msgspec

from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.explain import ExplainStep, NotAStep, explain
from holdfast.core.zones.transitions import Result
from holdfast.errors import ConfigError

EXAMPLE = '{"op": "update_pending", "before": {"stable": {"peers": ["A"]}}, "event": {...}}'


@click.group(short_help="What events do to the partitions of a zone.")
def zone() -> None:
    """Look at how the partitions of a zone move."""


@zone.command("explain", short_help="What an event would do to a partition's assignments, without a cluster.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, in the order of the steps.")
def explain_command(file: str, as_json: bool) -> None:
    r"""Say what an event would do to the assignments of a partition. Nothing is asked of any cluster.

    FILE (-: standard input) holds one step, or a list of steps that are carried out one after the other:

    \b
    {"op": "update_pending",
     "before": {"stable": {"peers": ["A", "B"]}},
     "event": {"calculated": {"peers": ["A", "C"]}, "known_stable": {"peers": ["A", "B"]}, "event_ts": 7}}

    `op` is update_pending, conf_applied, reduce_changed or reset. A later step may leave out `before`: then it begins
    with what the one before it left.
    """
    with click.open_file(file, "rb") as opened:
        given, single = _read(opened.read(), file)
    try:
        told = list(explain(given))
    except NotAStep as error:
        raise ConfigError(f"{file}: {error}") from error
    if as_json:
        answers = [{"result": result.value, "after": msgspec.to_builtins(after)} for result, after in told]
        json.dump(answers[0] if single else answers, sys.stdout, indent=2)
        click.echo()
        return
    for number, (step, (result, after)) in enumerate(zip(given, told, strict=True)):
        _tell(number, step, result, after)


def _read(data: bytes, name: str) -> tuple[list[ExplainStep], bool]:
    """The steps of a file, and whether it is one alone. Raises ConfigError."""
    try:
        found = msgspec.json.decode(data, type=list[ExplainStep] | ExplainStep)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{name}: {error}; a step looks like {EXAMPLE}") from error
    return ([found], True) if isinstance(found, ExplainStep) else (found, False)


def _tell(number: int, step: ExplainStep, result: Result, after: PartitionKeys) -> None:
    click.echo(f"{number}: {step.op}: {result.value}")
    rows: list[tuple[str, Assignments | None]] = [("stable", after.stable)]
    rows += [("pending" if not at else "", one) for at, one in enumerate(after.pending)]
    rows += [
        ("planned", after.planned),
        ("to take out", after.switch_reduce),
        ("to put back", after.switch_append),
    ]
    for name, assignments in rows:
        if assignments is not None:
            click.echo(f"   {name:<12} {_shown(assignments)}")
    if after.trigger is not None:
        click.echo(f"   {'trigger':<12} {after.trigger}")
    for at, link in enumerate(after.chain):
        click.echo(
            f"   {'' if at else 'chain':<12} {_shown(link.assignments)} (term {link.term}, index {link.index})"
        )


def _shown(assignments: Assignments) -> str:
    words = [*assignments.peers, *(f"{node} (learner)" for node in assignments.learners)]
    words += ["by force"] if assignments.force else []
    words += ["after a reset"] if assignments.from_reset else []
    return " ".join(words) or "nobody"
