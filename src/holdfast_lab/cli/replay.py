"""`python -m holdfast_lab replay`: replay the members of a recorded run, and print the history of a member or
partition.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.answers import json_option
from holdfast.cli.exit_statuses import FAILED
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import tell_json
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.config import Settings
    from holdfast.core.hosted_services import Service
    from holdfast.engine.replay import Happened
    from holdfast.observe.stories import Narrator

SECOND = 1_000_000_000


class _Told:
    def __init__(self, member: str | None, partition: int | None) -> None:
        self._member = member
        self._partition = partition
        self._names: dict[str, str] = {}
        self._narrators: dict[int, Narrator] = {}
        self.found = False

    def tell(self, happened: Happened) -> None:
        from holdfast.engine.recording import LaneCall, Outside
        from holdfast.observe.stories import Narrator

        member = happened.member
        if happened.event is None:
            self._names[member.me] = happened.name
            if self._partition is not None and self._partition >= len(member.picture.assignments):
                raise ConfigError(
                    f"--partition {self._partition} is not allowed: there are {len(member.picture.assignments)}"
                )
        if self._member not in (None, happened.name, happened.name.partition("#")[0], member.me):
            return
        self.found = True
        if happened.event is None:
            self._narrators[happened.life] = Narrator(self._names, partition=self._partition)
            lines = [f"begins as {member.me}" + (", with files" if member.recovered is not None else "")]
        elif isinstance(happened.event, LaneCall):
            call = happened.event
            about = call.partition >= 0 and self._partition in (None, call.partition)
            lines = [f"a session on the data lane: {call.call} in p{call.partition}"] if about else []
        elif isinstance(happened.event, Outside):
            lines = [f"the world: {happened.event.what}"]
        else:
            narrator = self._narrators[happened.life]
            lines = narrator.event(happened.event) + narrator.effects(happened.effects)
            lines += narrator.state(member.picture.view, member.picture.assignments)
        for line in lines:
            click.echo(f"{happened.at_ns / SECOND:10.4f} {happened.name} {line}")


@click.command
@click.argument("record", type=LocalPath(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--member",
    metavar="NAME",
    help="Print the history of this member: a name of the story (host1#3), a host, or a UUID.",
)
@click.option("--partition", type=click.IntRange(0), help="Print the history of this partition.")
@json_option
def replay(*, record: Path, member: str | None, partition: int | None, as_json: bool) -> None:
    r"""Replay every member of a recorded run (`python -m holdfast_lab simulate --seed N --record FILE`), and check
    that each step has the same effects. Rules that were off, and lies, are applied again. --member and --partition
    print the history of these.

    The exit status is 1 if a step differs (the first one is printed), or if the file cannot be read.

    \b
      python -m holdfast_lab replay run.rec --member host1#3 --partition 0
    """
    from holdfast.engine import recording
    from holdfast.engine.replay import Differs, Replay
    from holdfast.server.hazelcast.frame_serving import PLAIN_WAYS
    from holdfast_lab.sim.damage import harm_again
    from holdfast_lab.sim.run import as_recorded

    told = _Told(member, partition)
    tell = _nothing if as_json else click.echo
    tells = (member is not None or partition is not None) and not as_json
    with record.open("rb") as file:
        try:
            run = Replay(recording.read(file.read), _services, harm_again, PLAIN_WAYS)
            for what, how in run.told.items():
                tell(f"{what}: {how}")
            with as_recorded(run.told):
                for happened in run.run():
                    if tells:
                        told.tell(happened)
        except recording.RecordBroken as broken:
            click.echo(f"{record}: {broken}", err=True)
            sys.exit(FAILED)
        except Differs as differs:
            click.echo(f"{record}: not as it was: {differs}", err=True)
            sys.exit(FAILED)
    if tells and not told.found:
        raise ConfigError(f"--member {member!r} is not allowed: the record has no such member")
    for life, digest in run.hashes().items():
        tell(f"life {life}: {digest}")
    tell(f"{run.steps} steps of {len(run.hashes())} lives: all as they were")
    if as_json:
        lives = {str(life): digest for life, digest in run.hashes().items()}
        tell_json({"told": dict(run.told), "steps": run.steps, "lives": lives})


def _nothing(_: str) -> None: ...


def _services(names: Sequence[str], settings: Settings) -> Sequence[Service]:
    from holdfast.engine.recording import RecordBroken
    from holdfast_lab.sim.tally import NAME, Tally

    if set(names) - {NAME}:
        raise RecordBroken(f"it has services that this command does not know: {', '.join(names)}")
    return [Tally(settings.services[name].backups) for name in names]
