"""Scenarios: members join, drain, crash, or are restarted one after the other, and settings change.

A scenario is a list of steps separated by commas, which happen in turn; events joined by `+` happen at once:

    now                 nothing happens: the steps that the cluster has to take anyway
    join:100            100 members join, spread over the groups; join:100@GROUP all in that group;
                        join:NAME[@GROUP] a member with this name, on which placement by rendezvous depends
    drain:20            the first 20 members leave in order; drain:NAME that member
    crash:2             the first 2 members crash; crash:NAME that member
    crash-zone          all members of the first group crash; crash-zone:2 of the first two, crash-zone:NAME of that one
    rolling-restart     each group in turn (without groups each member) leaves in order and comes back empty;
                        rolling-restart:5 five members at a time
    backups:2           each partition has two backups from now on
    placement:even      the layout is `even`, or `rendezvous`, from now on
    replicas:5          of a zone: each partition has five replicas from now on
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from holdfast.config.schema import Placement
from holdfast.core.placement.layout import Candidate
from holdfast.errors import ConfigError
from holdfast.planning.risk import COPIES_MAX

FORMS = "now, join:N|NAME[@GROUP], drain:N|NAME, crash:N|NAME, crash-zone[:N|NAME], rolling-restart[:N], "
FORMS += "backups:N, placement:even|rendezvous, replicas:N"


@dataclass(frozen=True, slots=True)
class Step:
    text: str
    join: tuple[Candidate, ...] = ()
    drain: tuple[str, ...] = ()
    crash: tuple[str, ...] = ()
    backups: int | None = None
    """From this step on; None: as before."""
    placement: Placement | None = None
    replicas: int | None = None
    """Number of replicas of a zone from this step on; None: as before."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps in turn; each begins when the previous one has been carried out."""

    text: str
    steps: tuple[Step, ...]


def synthetic(members: int, groups: int) -> tuple[Candidate, ...]:
    """Members `m00000`, ..., spread over groups `g0`, ...; 0 groups: each member is its own group."""
    if members < 1 or groups < 0 or groups > members:
        raise ConfigError(f"{members} members in {groups} groups cannot be: at least 1 member for each group")
    return tuple(
        Candidate(f"m{number:05d}", f"g{number % groups}" if groups else "") for number in range(members)
    )


def parse(text: str, members: Sequence[Candidate], others: Collection[str] = ()) -> Scenario:
    """`others`: members that hold nothing, and may drain or crash by name. Raises ConfigError, which
    describes the syntax.
    """
    here = list(members)
    steps: list[Step] = []
    joined = 0
    for part in text.split(","):
        parts = [each.strip().partition(":") for each in part.split("+")]
        if parts[0][0] == "rolling-restart":
            if len(parts) > 1:
                raise ConfigError(
                    f"rolling-restart happens in many steps, and not at once with others: {part!r}"
                )
            steps += _rolling(parts[0][2], here)
            continue
        step = _Step(part.strip(), here, joined, others)
        for kind, _, rest in parts:
            step.add(kind, rest)
        joined = step.joined
        here = step.left()
        if not here:
            raise ConfigError(f"after {part!r} no member would be left")
        steps.append(step.made())
    return Scenario(text, tuple(steps))


@dataclass(slots=True)
class _Step:
    text: str
    here: list[Candidate]
    joined: int
    others: Collection[str]
    join: list[Candidate] = field(default_factory=list)
    drain: list[str] = field(default_factory=list)
    crash: list[str] = field(default_factory=list)
    backups: int | None = None
    placement: Placement | None = None
    replicas: int | None = None

    def add(self, kind: str, rest: str) -> None:
        match kind:
            case "join":
                self.join += _newcomers(rest, self.here, self.joined + len(self.join))
            case "drain":
                self.drain += self._members(kind, rest)
            case "crash":
                self.crash += self._members(kind, rest)
            case "crash-zone":
                zones = self._zones(rest)
                self.crash += [
                    each.uuid for each in self.here if each.group in zones and each.uuid not in self.gone
                ]
            case "now" if not rest:
                pass
            case "backups":
                if not rest.isdecimal() or int(rest) >= COPIES_MAX:
                    raise ConfigError(
                        f"backups:{rest} is not allowed: give a number from 0 to {COPIES_MAX - 1}"
                    )
                self.backups = int(rest)
            case "replicas":
                self.replicas = _count(kind, rest)
            case "placement":
                if rest not in get_args(Placement):
                    raise ConfigError(
                        f"placement:{rest} is not allowed: give {' or '.join(get_args(Placement))}"
                    )
                self.placement = cast("Placement", rest)
            case _:
                raise ConfigError(f"the scenario {kind!r} is not known: {FORMS}")

    @property
    def gone(self) -> list[str]:
        return [*self.drain, *self.crash]

    def _members(self, kind: str, rest: str) -> list[str]:
        free = [each.uuid for each in self.here if each.uuid not in self.gone]
        if rest in free or (rest in self.others and rest not in self.gone):
            return [rest]
        if rest in self.gone:
            raise ConfigError(f"{rest} cannot both crash and be drained: leave one out")
        count = _count(kind, rest, f"no member has that name: {', '.join(free[:5])}, …")
        if count > len(free):
            raise ConfigError(f"{kind}:{rest}: there are only {len(free)} members")
        return free[:count]

    def _zones(self, rest: str) -> list[str]:
        names = list(dict.fromkeys(each.group for each in self.here if each.group))
        if not names:
            raise ConfigError("crash-zone: these members have no groups; give --groups")
        if rest in names:
            return [rest]
        count = _count("crash-zone", rest or "1", f"the groups are {', '.join(names[:10])}")
        return names[:count]

    def left(self) -> list[Candidate]:
        gone = set(self.gone)
        return [each for each in self.here if each.uuid not in gone] + self.join

    def made(self) -> Step:
        self.joined += len(self.join)
        return Step(
            self.text,
            tuple(self.join),
            tuple(self.drain),
            tuple(self.crash),
            self.backups,
            self.placement,
            self.replicas,
        )


def _newcomers(rest: str, here: Sequence[Candidate], number: int) -> list[Candidate]:
    who, at, group = rest.partition("@")
    if not who or (at and not group):
        raise ConfigError(f"join:{rest} is not allowed: give join:N, join:NAME or join:N@GROUP")
    name = "" if who.isdecimal() else who
    count = 1 if name else _count("join", who)
    groups = [group] if group else list(dict.fromkeys(each.group for each in here if each.group))
    return [
        Candidate(f"join-{number + each + 1}", groups[(number + each) % len(groups)] if groups else "", name)
        for each in range(count)
    ]


def _rolling(rest: str, here: Sequence[Candidate]) -> Iterator[Step]:
    groups = list(dict.fromkeys(each.group for each in here if each.group))
    if rest or not groups:
        size = _count("rolling-restart", rest or "1")
        waves = [list(here[first : first + size]) for first in range(0, len(here), size)]
    else:
        waves = [[each for each in here if each.group == group] for group in groups]
    if len(waves) < 2:
        raise ConfigError(
            "rolling-restart: no member would be left while all restart; restart fewer at a time"
        )
    for wave in waves:
        name = wave[0].uuid if len(wave) == 1 else f"{len(wave)} from {wave[0].uuid}"
        yield Step(f"{name} leave", drain=tuple(each.uuid for each in wave))
        yield Step(f"{name} back", join=tuple(wave))


def _count(kind: str, rest: str, other: str = "") -> int:
    if not rest.isdecimal() or int(rest) < 1:
        raise ConfigError(
            f"{kind}:{rest} is not allowed: give a number above 0"
            + (f", or a name ({other})" if other else "")
        )
    return int(rest)
