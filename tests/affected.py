"""Print the test files that a change can reach, near and cheap ones first: `make quick`.

A test file is reached if it imports a changed module, directly or through others. Its distance is the number of imports
on the shortest way: with `tests/a.py -> holdfast.b -> holdfast.c`, a change of `holdfast.c` is at distance 2 of
`tests/a.py`. A file that starts programs imports none of their modules but runs all of them: it counts as one that
imports `holdfast.cli.main` and `holdfast.runtime.process`.

A page, a schema or an example is imported by none: it reaches the test files that name it or its folder.

Files are taken in the order of distance times processor seconds (`tests.costs`), until these are used up: a change at
the bottom of `core` reaches nearly everything, and `make test` is for that. Files that were left out are counted on
standard error.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import grimp
from tests.costs import STARTS_PROGRAMS, cost

import holdfast

ROOT = Path(__file__).parents[1]
PACKAGES = ("holdfast", "holdfast_lab")
ALWAYS = ("tests/test_house.py", "tests/test_ratchets.py")
PROGRAM = ("holdfast.cli.main", "holdfast.runtime.process")
COMMANDS = {"holdfast.cli": "holdfast.cli.main", "holdfast_lab.cli": "holdfast_lab.cli.main"}
"""Folders of commands, and the module that finds them by name."""
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
    importers = {module: set(known) for module, known in source_importers().items()}
    modules = {module for known in importers.values() for module in known} | importers.keys()
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "tests").rglob("*.py"))}
    modules |= {module_of(path.relative_to(root).as_posix()) for path in texts}
    for path, text in texts.items():
        if path == root / "tests" / "conftest.py":
            continue  # it imports what runs the tests; else each change of a client would reach all of them
        name = module_of(path.relative_to(root).as_posix())
        for known in imported(path.relative_to(root).as_posix(), text, modules):
            importers.setdefault(known, set()).add(name)
    files = list(files)
    found = distances(changed_modules(files, modules), importers)
    for path, text in texts.items():
        if any(names(text, file) for file in files):
            found.setdefault(module_of(path.relative_to(root).as_posix()), 1)
    reached = {
        path.relative_to(root).as_posix(): found[name]
        for path in texts
        if path.name.startswith("test_") and (name := module_of(path.relative_to(root).as_posix())) in found
    }
    return dict(sorted(reached.items(), key=lambda each: (each[1] * max(0.1, cost(each[0])), each[0])))


@cache
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
    for node in imports(text):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
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


@cache
def imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


def names(text: str, file: str) -> bool:
    """Whether a file of tests reads this one, which is no module: it has its name, or the name of its folder."""
    path = Path(file)
    if path.suffix == ".py" or path.parts[0] == "src":
        return False
    folder = path.parent.name
    return path.name in text or (len(path.parts) > 2 and f'"{folder}"' in text)


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


def within(
    reached: Mapping[str, int], budget_s: float = BUDGET_S, costs: Callable[[str], float] = cost
) -> list[str]:
    """The first of these files that fit into the budget; changed ones in any case."""
    taken, used = [], 0.0
    for file, distance in reached.items():
        if distance == 0 or used + costs(file) <= budget_s:
            taken.append(file)
            used += costs(file)
    return taken


def _git(*words: str) -> list[str]:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.split("\n")[:-1] if ran.returncode == 0 else []


if __name__ == "__main__":
    main()
