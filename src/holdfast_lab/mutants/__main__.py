"""`python -m holdfast_lab.mutants`: run the unit tests against small mutations, and list the surviving ones.

The exit status is 1 if the score of a module, or of all, is below its minimum, if the tests of a module could not be
run, or if the list of equivalents is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast_lab.mutants.judge import KILLED, LATER, ROOT, TIMED_OUT, Orders, Target

HERE = Path(__file__).parent


@dataclass
class Module:
    path: str
    tests: list[str]
    floor: float
    target: Target
    chosen: list[str] = field(default_factory=list)
    verdicts: dict[str, str] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    equivalent: dict[str, str] = field(default_factory=dict)
    """Mutant key -> the reason why the mutant changes no behaviour."""
    seconds: float = 0.0
    failure: str = ""
    """Output of the tests, if they could not be run or fail without any mutant."""

    @property
    def killed(self) -> int:
        return sum(1 for verdict in self.verdicts.values() if verdict in {KILLED, TIMED_OUT})

    @property
    def counted(self) -> int:
        noticed = {KILLED, TIMED_OUT}
        silent = sum(1 for key in self.equivalent if self.verdicts.get(key, KILLED) not in noticed)
        return len(self.verdicts) - silent

    @property
    def survivors(self) -> list[str]:
        """Mutants that no test noticed and no reason explains."""
        return [
            key
            for key, verdict in self.verdicts.items()
            if verdict not in {KILLED, TIMED_OUT} and key not in self.equivalent
        ]

    @property
    def wrong(self) -> list[str]:
        gone = [
            f"no such mutant any more: {key}" for key in self.equivalent if key not in self.target.mutants
        ]
        noticed = {KILLED, TIMED_OUT}
        return gone + [
            f"not equivalent, {self.by[key] or 'a test'} notices it: {key}"
            for key in self.equivalent
            if self.verdicts.get(key) in noticed
        ]


def share(killed: int, counted: int) -> float:
    return 100 * killed / counted if counted else 100.0


def read(names: list[str], tests: list[str]) -> tuple[list[Module], float]:
    """The requested modules (by path or its end), and the minimum of the total."""
    table = tomllib.loads((HERE / "modules.toml").read_text(encoding="utf-8"))
    reasons = tomllib.loads((HERE / "equivalents.toml").read_text(encoding="utf-8"))
    floor = float(table.pop("floor"))
    if wrong := stale(table, reasons.get("equivalent", [])):
        raise SystemExit("\n".join(wrong))
    wanted = [path for path in table if not names or any(_names(name, path) for name in names)]
    for name in names:
        if not any(_names(name, path) for path in table):
            raise SystemExit(
                f"src/holdfast_lab/mutants/modules.toml knows no module {name!r}; it knows: {', '.join(table)}"
            )
    modules = []
    for path in wanted:
        row: dict[str, Any] = table[path]
        module = Module(path, tests or row["tests"], float(row.get("floor", 0)), Target(path))
        for reason in reasons.get("equivalent", []):
            if reason["module"] == path:
                module.equivalent |= dict.fromkeys(reason["mutants"], reason["why"])
        modules.append(module)
    return modules, floor


def stale(table: dict[str, Any], reasons: list[dict[str, Any]]) -> list[str]:
    """Listed modules and mutants that do not exist."""
    unknown = sorted({reason["module"] for reason in reasons} - table.keys())
    found = [
        f"src/holdfast_lab/mutants/equivalents.toml: {path} is no module of src/holdfast_lab/mutants/modules.toml"
        for path in unknown
    ]
    tests = sorted({test for row in table.values() for test in row["tests"]})
    gone = [
        f"src/holdfast_lab/mutants/modules.toml: there is no {test}"
        for test in tests
        if not (ROOT / test).exists()
    ]
    return found + gone


def _names(name: str, path: str) -> bool:
    return f"/{path}".endswith((f"/{name}", f"/{name}.py")) or path.startswith(f"{name.rstrip('/')}/")


def choose(modules: list[Module], sample: int, seed: int, match: str) -> None:
    """Choose the mutants to judge: those that contain `match`, all or a sample that depends only on the seed."""
    everything = [(module, key) for module in modules for key in module.target.mutants if match in key]
    if sample and sample < len(everything):
        drawn = set(random.Random(f"{seed}/mutants").sample(range(len(everything)), sample))
        everything = [one for index, one in enumerate(everything) if index in drawn]
    for module, key in everything:
        module.chosen.append(key)


def judge(module: Module, workers: int) -> None:
    """In a separate process. Sets `failure` if the tests do not pass without a mutant."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        answers = Path(scratch) / "answers"
        answers.touch()
        orders = Path(scratch) / "orders.json"
        order = Orders(module.path, module.tests, module.chosen, workers, str(answers), scratch)
        orders.write_text(json.dumps(dataclasses.asdict(order)), encoding="utf-8")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST"))
        }
        environment["PYTHONPATH"] = str(ROOT / "src")
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        command = [sys.executable, "-m", "holdfast_lab.mutants.judge", str(orders)]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate()
            finally:
                if process.poll() is None:
                    # This process is ending: end its children, and theirs, with it.
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            module.failure = said[-6000:]
            return
        for line in answers.read_text(encoding="utf-8").splitlines():
            key, verdict, by = json.loads(line)
            if verdict != LATER:
                module.verdicts[key], module.by[key] = verdict, by
    module.verdicts = {key: module.verdicts[key] for key in module.chosen}
    module.seconds = time.monotonic() - begun


def tell(module: Module, *, kills: bool) -> None:
    if module.failure:
        print(f"{module.failure}\n{module.path}: the tests could not be run, see above", flush=True)
        return
    verdicts = list(module.verdicts.values())
    equivalent = len(verdicts) - module.counted
    print(
        f"{module.path:34} {len(verdicts):5} mutants  {verdicts.count(KILLED):5} killed "
        f"{verdicts.count(TIMED_OUT):3} time-out {len(module.survivors):4} survived {equivalent:3} equivalent  "
        f"{share(module.killed, module.counted):5.1f} %  {module.seconds:4.0f} s",
        flush=True,
    )
    for key in module.survivors:
        mutant = module.target.mutants[key]
        shown = module.target.path.relative_to(ROOT)
        print(f"  {module.verdicts[key]}: {shown}:{mutant.first_line}  {key}")
    if kills:
        for key, verdict in module.verdicts.items():
            if verdict in {KILLED, TIMED_OUT}:
                print(f"  {verdict}: {key}\n      {module.by[key]}")
    for line in module.wrong:
        print(f"  src/holdfast_lab/mutants/equivalents.toml: {line}")


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.mutants", description=__doc__)
    parser.add_argument(
        "modules",
        nargs="*",
        help="names from src/holdfast_lab/mutants/modules.toml, or their last part: agreement, table_replication",
    )
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="run only N mutants, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--match", default="", metavar="TEXT", help="only mutants whose name contains TEXT")
    parser.add_argument(
        "--tests", nargs="+", default=[], metavar="PATH", help="tests to run instead of those in modules.toml"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="list the mutants, and run no tests")
    parser.add_argument("--kills", action="store_true", help="print the test that killed each mutant")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    modules, floor = read(options.modules, options.tests)
    choose(modules, options.sample, options.seed, options.match)
    listed, modules = modules, [module for module in modules if module.chosen]
    if options.list:
        for module in modules:
            for key in module.chosen:
                print(f"{module.path}:{module.target.mutants[key].first_line}  {key}")
        wrong = [f"{module.path}: {line}" for module in listed for line in module.wrong]
        print(*wrong, sep="\n", end="\n" if wrong else "")
        return 1 if wrong else 0
    low = []
    for module in modules:
        judge(module, options.workers)
        tell(module, kills=options.kills)
        whole = len(module.chosen) == len(module.target.mutants)
        if module.failure:
            low.append(f"{module.path}: the tests could not be run")
        elif whole and share(module.killed, module.counted) < module.floor:
            low.append(f"{module.path} is below its floor of {module.floor:g} %")
    killed, counted = sum(module.killed for module in modules), sum(module.counted for module in modules)
    print(f"{share(killed, counted):.1f} % of {counted} mutants noticed")
    if not options.modules and share(killed, counted) < floor:
        low.append(f"all together are below the floor of {floor:g} %")
    print("\n".join(low))
    return 1 if low or any(module.wrong for module in modules) else 0


if __name__ == "__main__":
    sys.exit(main())
