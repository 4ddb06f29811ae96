"""Print the test files that a change can reach, near and cheap ones first: `make quick`.

A test file is reached if it imports a changed module, directly or through others. Its distance is the number of imports
on the shortest way: with `tests/a.py -> holdfast.b -> holdfast.c`, a change of `holdfast.c` is at distance 2 of
`tests/a.py`. A file that starts programs imports none of their modules but runs all of them: it counts as one that
imports `holdfast.cli.main` and `holdfast.runtime.process`.

Files are taken in the order of distance times estimated seconds, until these are used up: a change at the bottom of
`core` reaches nearly everything, and `make test` is for that. Files that were left out are counted on standard error.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

import holdfast

ROOT = Path(__file__).parents[1]
PACKAGES = ("holdfast", "holdfast_lab")
ALWAYS = ("tests/test_house.py", "tests/test_ratchets.py")
PROGRAM = ("holdfast.cli.main", "holdfast.runtime.process")
COMMANDS = {"holdfast.cli": "holdfast.cli.main", "holdfast_lab.cli": "holdfast_lab.cli.main"}
"""Folders of commands, and the module that finds them by name."""
STARTS_PROGRAMS = re.compile(r"\bLocalCluster\b|\bCOMMAND\b|\bsys\.executable\b|\brun_program\b|\bKeepers\b")
ESTIMATES_S = {
    re.compile(r"pytest\.mark\.spark\b"): 25.0,
    STARTS_PROGRAMS: 10.0,
    re.compile(r"from holdfast_lab\.sim\b|from tests\.lab\.sim\b"): 6.0,
}
"""Processor seconds of a file with such a text; the first that fits counts."""
ESTIMATE_S = 0.5
BUDGET_S = 120.0
"""For all files but those of `ALWAYS`, which take about as long: the aim is two minutes with two workers."""

Importers = dict[str, set[str]]
"""By module: the modules that import it."""


def main() -> None:
    """Print the files for pytest."""
    files = changed(sys.argv[1] if len(sys.argv) > 1 else "origin/main")
    reached = reach(files)
    taken = within(reached)
    left = len(reached) - len(taken)
    print(
        f"{len(files)} changed files reach {len(reached)} test files"
        + (f"; {left} far or slow ones are left to make test" if left else ""),
        file=sys.stderr,
    )
    print(*dict.fromkeys([*ALWAYS, *taken]))


def changed(base: str) -> list[str]:
    """The files that differ from the common ancestor with this branch or commit, and those that git does not know."""
    common = _git("merge-base", "HEAD", base) or ["HEAD"]
    return sorted(
        {*_git("diff", "--name-only", common[0]), *_git("ls-files", "--others", "--exclude-standard")}
    )


def reach(files: Iterable[str], root: Path = ROOT) -> dict[str, int]:
    """The test files that these files reach, near and cheap ones first, and their distances."""
    importers = source_importers()
    modules = {module for known in importers.values() for module in known} | importers.keys()
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "tests").rglob("*.py"))}
    modules |= {module_of(path.relative_to(root).as_posix()) for path in texts}
    for path, text in texts.items():
        if path == root / "tests" / "conftest.py":
            continue  # it imports what runs the tests; else each change of a client would reach all of them
        name = module_of(path.relative_to(root).as_posix())
        for known in imported(path.relative_to(root).as_posix(), text, modules):
            importers.setdefault(known, set()).add(name)
    found = distances(changed_modules(files, modules), importers)
    reached = {
        path.relative_to(root).as_posix(): found[name]
        for path in texts
        if path.name.startswith("test_") and (name := module_of(path.relative_to(root).as_posix())) in found
    }
    costs = {path.relative_to(root).as_posix(): estimate(text) for path, text in texts.items()}
    return dict(sorted(reached.items(), key=lambda each: (each[1] * costs[each[0]], each[0])))


def source_importers() -> Importers:
    """The import graph of the packages.

    An `__init__` is imported by all modules of its folder, except those of the packages themselves, which import what
    is asked of them when it is asked. Commands are named by texts (`holdfast.cli.lazy_group`) and imported by `main`.
    """
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    importers = {
        module: {
            *graph.find_modules_that_directly_import(module),
            *(() if module in PACKAGES else graph.find_children(module)),
        }
        for module in graph.modules
    }
    for package, group in COMMANDS.items():
        for command in graph.find_children(package) - {group}:
            importers[command].add(group)
    return importers


def module_of(path: str) -> str:
    """`holdfast.core.member` of `src/holdfast/core/member.py`."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(path: str, text: str, modules: Iterable[str]) -> set[str]:
    """The modules that a file of the tests imports, the settings of its folders, and what a program of it runs."""
    known = set(modules)
    found: set[str] = set(PROGRAM) if STARTS_PROGRAMS.search(text) else set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if node.module == "holdfast" and alias.name in holdfast._HOMES:
                    found.add(holdfast._HOMES[alias.name])
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    folders = Path(path).parents
    return found | {module_of((folder / "conftest.py").as_posix()) for folder in folders if folder.name}


def changed_modules(files: Iterable[str], modules: set[str]) -> set[str]:
    """The modules of these files. A file beside modules that is none, such as a `.pyx`, may be part of each of them."""
    found: set[str] = set()
    for file in files:
        name = module_of(file)
        if name in modules or (file.startswith("tests/") and file.endswith(".py")):
            found.add(name)
        elif file.startswith("src/"):
            folder = module_of(Path(file).parent.as_posix())
            found |= {module for module in modules if module.rpartition(".")[0] == folder}
    return found


def distances(begin: Iterable[str], importers: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """How many imports lead from each module to the nearest of these; modules from which none does are missing."""
    found = dict.fromkeys(begin, 0)
    layer = list(found)
    while layer:
        following = []
        for module in layer:
            for importer in sorted(importers.get(module, ())):
                if importer not in found:
                    found[importer] = found[module] + 1
                    following.append(importer)
        layer = following
    return found


def within(reached: Mapping[str, int], budget_s: float = BUDGET_S, root: Path = ROOT) -> list[str]:
    """The first of these files whose estimates fit into the budget; changed ones in any case."""
    taken, used = [], 0.0
    for file, distance in reached.items():
        used += (cost := estimate((root / file).read_text(encoding="utf-8")))
        if distance == 0 or used <= budget_s:
            taken.append(file)
        else:
            used -= cost
    return taken


def estimate(text: str) -> float:
    """About how many processor seconds a file of tests takes."""
    return next((cost for pattern, cost in ESTIMATES_S.items() if pattern.search(text)), ESTIMATE_S)


def _git(*words: str) -> list[str]:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.split("\n")[:-1] if ran.returncode == 0 else []


if __name__ == "__main__":
    main()
