"""Simulated clusters by the hundred: seeds x settings as a Spark job, with a table of the results.

    result = campaign(spark, range(200), ["plain", "mixed", "cuts"])
    print(result)
    result.frame(spark).where("verdict <> 'good'").show()

A run is one seed of the simulator, the same wherever it runs. One that raises an error is a row as well.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.spark import jobs
from holdfast_lab.sim.ablations.rules import RULES
from holdfast_lab.sim.marks import MARK
from holdfast_lab.sim.run import simulate
from holdfast_lab.sim.shape import Journalling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOOD, FAILED, ERROR = "good", "failed", "error"
"""The judges found nothing; they found something; the run did not end because of an error in the code."""

FAULT = "fault_"
"""Prefix of the figures of faults; their kind follows."""
LAST_LINES = 40
"""Lines of its story kept of a run that is not good."""
TASKS_MAX = 2_000
SHOWN = 20
SHOWN_PROBLEMS = 3


class Terms(NamedTuple):
    journal: Journalling
    power_cuts: bool = False

    @property
    def flags(self) -> str:
        """As options of `python -m holdfast_lab simulate`."""
        return "--power-cuts" if self.power_cuts else f"--journal {self.journal}"


SETTINGS = {
    "plain": Terms("off"),
    "sync": Terms("sync"),
    "lazy": Terms("lazy"),
    "mixed": Terms("mixed"),
    "cuts": Terms("sync", power_cuts=True),
}
"""No journal; maps journalled in this way; in one of these ways, by the seed; and all members losing power at
once.
"""

_COUNTS = pa.map_(pa.string(), pa.int64())
_TYPES: dict[str, pa.DataType] = {
    "settings": pa.string(),
    "seed": pa.int64(),
    "verdict": pa.string(),
    "problems": pa.list_(pa.string()),
    "faults": _COUNTS,
    "rules": _COUNTS,
    "figures": pa.map_(pa.string(), pa.float64()),
    "story": pa.string(),
    "last": pa.list_(pa.string()),
    "trace_hash": pa.string(),
    "seconds": pa.float64(),
    "replay": pa.string(),
}
SCHEMA = pa.schema(_TYPES)
"""`faults`: how many of each kind; `rules`: how often each mattered to a decision; `story`: its first line,
`last` the last ones of a run that is not good; `replay`: the command that runs it again, with its story.
"""

DDL = (
    "settings string, seed bigint, verdict string, problems array<string>, faults map<string,bigint>, "
    "rules map<string,bigint>, figures map<string,double>, story string, last array<string>, trace_hash string, "
    "seconds double, replay string"
)


@dataclass(frozen=True, slots=True)
class Run:
    settings: str
    seed: int
    without: frozenset[str] = frozenset()

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        rules = "".join(f" --without {rule}" for rule in sorted(self.without))
        return f"python -m holdfast_lab simulate --seed {self.seed}{rules} {SETTINGS[self.settings].flags}"


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """All runs, those that are not good first, then by settings and seed."""

    table: pa.Table
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.bad

    @property
    def bad(self) -> list[dict[str, Any]]:
        return [run for run in self.rows() if run["verdict"] != GOOD]

    def rows(self) -> list[dict[str, Any]]:
        return [
            {**run, **{name: dict(run[name]) for name in ("faults", "rules", "figures")}}
            for run in self.table.to_pylist()
        ]

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each run."""
        return spark.createDataFrame(self.table)

    @property
    def idle(self) -> list[str]:
        """Rules that mattered to no decision in any run."""
        asked = {name for run in self.rows() for name in run["rules"]}
        return [name for name in RULES if name not in asked]

    def __str__(self) -> str:
        return "\n".join(_text(self))


def campaign(
    spark: SparkSession,
    seeds: Sequence[int],
    settings: Sequence[str] = ("plain", "mixed", "cuts"),
    *,
    without: frozenset[str] = frozenset(),
    progress: jobs.Show = jobs.nothing,
) -> CampaignResult:
    """Simulate every seed with each of these settings. Raises ConfigError, or JobFailed. A run that raises an
    error is a row; only a process that dies makes its task fail.
    """
    began = time.monotonic()
    runs = plan(seeds, settings, without)
    shares = [runs[first :: min(TASKS_MAX, len(runs))] for first in range(min(TASKS_MAX, len(runs)))]
    counted = jobs.Counted(spark)

    def work(share: list[Run]) -> Iterator[pa.RecordBatch]:
        for run in share:
            yield pa.RecordBatch.from_pylist([judged(run)], schema=SCHEMA)
            counted.add(1)

    found = jobs.run(spark, shares, work, DDL, title="campaign", progress=progress, counted=counted)
    rows = found.to_pylist()
    rows.sort(key=lambda run: (run["verdict"] == GOOD, list(settings).index(run["settings"]), run["seed"]))
    return CampaignResult(pa.Table.from_pylist(rows, schema=SCHEMA), time.monotonic() - began)


def plan(seeds: Sequence[int], settings: Sequence[str], without: frozenset[str] = frozenset()) -> list[Run]:
    """Raises ConfigError."""
    if unknown := [name for name in settings if name not in SETTINGS]:
        raise ConfigError(f"the settings {unknown[0]!r} are not known: {', '.join(SETTINGS)}")
    if unknown := sorted(without - RULES.keys()):
        raise ConfigError(f"the rule {unknown[0]!r} is not known: {', '.join(RULES)}")
    if not seeds or not settings:
        raise ConfigError("a campaign needs seeds and settings")
    return [Run(name, seed, without) for seed in seeds for name in dict.fromkeys(settings)]


def judged(run: Run) -> dict[str, Any]:
    """One run, as a row of `SCHEMA`. An error in the member's or the simulator's code is a verdict too."""
    began = time.monotonic()
    terms, asked = SETTINGS[run.settings], Counter[str]()
    first: list[str] = []
    last: deque[str] = deque(maxlen=LAST_LINES)

    def story(line: str) -> None:
        if not first:
            first.append(line)
        last.append(line)

    row: dict[str, Any] = {
        "settings": run.settings,
        "seed": run.seed,
        "replay": run.replay,
        "figures": {},
        "faults": {},
    }
    try:
        found = simulate(
            run.seed,
            without=run.without,
            story=story,
            journal=terms.journal,
            power_cuts=terms.power_cuts,
            asked=asked,
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever goes wrong belongs to this seed
        row |= {"verdict": ERROR, "problems": [f"{type(error).__name__}: {error}"]}
    else:
        row |= {
            "verdict": GOOD if found.ok else FAILED,
            "problems": found.problems,
            "faults": {
                name.removeprefix(FAULT): int(count)
                for name, count in found.figures.items()
                if name.startswith(FAULT)
            },
            "figures": {
                name: float(value)
                for name, value in found.figures.items()
                if not name.startswith((FAULT, MARK))
            },
            "trace_hash": found.trace_hash,
        }
    return row | {
        "rules": dict(asked),
        "story": first[0] if first else "",
        "last": [] if row["verdict"] == GOOD else list(last),
        "seconds": time.monotonic() - began,
    }


def _text(result: CampaignResult) -> Iterator[str]:
    rows = result.rows()
    bad = result.bad
    for run in bad[:SHOWN]:
        yield f"{run['settings']} seed {run['seed']} {run['verdict']}; replay it: {run['replay']}"
        yield from (f"  {problem}" for problem in run["problems"][:SHOWN_PROBLEMS])
    if len(bad) > SHOWN:
        yield f"and {len(bad) - SHOWN:,} more"
    faults: Counter[str] = Counter()
    figures: Counter[str] = Counter()
    for run in rows:
        faults.update(run["faults"])
        figures.update({name: int(value) for name, value in run["figures"].items()})
    yield "faults: " + (", ".join(f"{count:,} {kind}" for kind, count in sorted(faults.items())) or "none")
    if idle := result.idle:
        yield f"rules that no decision needed: {', '.join(idle)}"
    counts = Counter(run["settings"] for run in rows)
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    yield (
        f"{len(rows):,} runs ({told}), {figures['migrations_under_faults']:,} migrations under faults, "
        f"{result.seconds:.0f} s: {len(bad):,} not good"
    )
