"""The house rules that no tool of its own enforces, and the proof that those which have one can fail."""

from __future__ import annotations

import ast
import functools
import gc
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as package
from holdfast.cli.main import COMMANDS
from holdfast.config.describe import schema
from holdfast_lab.cli.main import COMMANDS as LAB_COMMANDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "holdfast"
LAB = SOURCE / "holdfast_lab"
SCRIPTS = (LAB / "bench", LAB / "mutants")
"""Programs that measure: they may be untidy inside, and no rule of the rest counts there."""
MODULES = sorted(PACKAGE.rglob("*.py")) + [
    path for path in sorted(LAB.rglob("*.py")) if not set(SCRIPTS) & set(path.parents)
]
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MODULE_LINES = 1_000
"""Against files that nobody reads whole. One role a module is the rule; a lower number made crumbs of overflow."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools", "stuff"}
EXECUTABLE = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "code", "codeop"}
"""Modules that turn bytes into something that runs."""
EVALUATING = {"eval", "exec", "compile", "__import__"}
INDEX_HOSTS = re.compile(
    r"p[y]pi\.org|py[t]honhosted\.org|registry\.np[m]js|registry\.y[a]rnpkg|proxy\.g[o]lang|repo1?\.m[a]ven",
    re.IGNORECASE,
)
"""Spelt so that this file does not name them either."""
NOT_OURS = {".git", ".venv", "node_modules", "target", "out", "build", "dist"}


def trees(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    for path in paths:
        yield path, parsed(path)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Read once, for all the tests here. No test changes a tree."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # Else the collector visits the nodes of all trees again and again, which takes longer than parsing.
    gc.freeze()
    return tree


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- layers


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """The import contracts of pyproject.toml, judged on the package under `root`."""
    command = (
        "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    )
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache", "--config", str(root / "pyproject.toml")],
        cwd=root,
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_imports_point_down() -> None:
    told = lint(ROOT)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "0 broken" in told.stdout


BREACHES = {
    "core/raft/quorum.py": ("import holdfast.core.model.ids", "The Raft library"),
    "core/outbox.py": ("import time", "The pure layers"),
    "server/grid.py": ("from asyncio import Queue", "The pure layers"),
    "wire/own.py": ("import pickle", "The pure layers"),
    "runtime/__init__.py": ("import holdfast_lab.sim", "The product knows nothing"),
    "spark/jobs.py": ("import holdfast.server.grid", "Spark uses"),
    "core/store/partition_copy.py": ("import holdfast.wire", "Imports point down only"),
    "engine/link.py": ("import holdfast_lab.sim.ablations.switching", "The product knows nothing"),
    "../holdfast_lab/sim/world.py": ("import threading", "The simulated world"),
    "../holdfast_lab/check/bank.py": ("import holdfast_lab.sim", "In the laboratory"),
    "client/__init__.py": ("import holdfast.server.grid", "A client needs no server"),
    "config/schema.py": ("import os", "Settings are data"),
    "core/model/ids.py": ("import holdfast.core.messages", "Inside core"),
    "core/messages.py": ("import holdfast.core.store.partition_copy", "Inside core"),
    "core/store/tail.py": ("import holdfast.core.primary_backup.lane", "Inside core"),
    "core/membership/failure_detector.py": (
        "import holdfast.core.partition_table.table_replication",
        "Inside core",
    ),
    "core/journal/log.py": ("import holdfast.core.membership.membership", "Inside core"),
    "core/primary_backup/ack_batch.py": ("import holdfast.core.state_transfer.source", "Inside core"),
    "core/state_transfer/content.py": ("import holdfast.core.migration.migration_master", "Inside core"),
    "core/routing/router.py": ("import holdfast.core.member", "Inside core"),
    "runtime/doors/connection_log.py": ("import holdfast.runtime.node", "In the real world"),
}


def test_each_breach_of_the_layers_is_found(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, (line, _) in BREACHES.items():
        breached = tmp_path / "src" / "holdfast" / module
        breached.write_text(breached.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    told = lint(tmp_path)
    assert told.returncode == 1, told.stdout + told.stderr
    # A title, which may take two lines, and what is wrong under it.
    blocks = re.split(
        r"\n(?=[A-Z][^\n]*\n(?:[^\n-][^\n]*\n)?-{9})", told.stdout.partition("Broken contracts")[2]
    )
    for module, (line, contract) in BREACHES.items():
        importer = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        importer = importer.removeprefix("...") if importer.startswith("...") else f"holdfast.{importer}"
        (block,) = (one for one in blocks if one.startswith(contract))
        breach = rf"- +{re.escape(importer)} ->\s+{re.escape(line.split()[1])}\s"
        assert re.search(breach, block), f"{line!r} in {importer} is not seen:\n{block}"


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other in a circle, each circle once: whoever reaches itself."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        seen: set[str] = set()
        work = [module]
        while work:
            new = imports.get(work.pop(), set()) - seen
            seen |= new
            work += new
        reached[module] = seen
    found = {
        tuple(sorted(other for other in reached[module] if module in reached.get(other, ())))
        for module in imports
        if module in reached[module]
    }
    return [list(one) for one in sorted(found)]


def imported(root: Path) -> dict[str, set[str]]:
    """What each module under `root` imports of the others, also inside functions and only for types."""
    modules = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(root.rglob("*.py"))
    }
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        wanted = found[module] = set()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                wanted |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                for name in node.names:
                    inner = f"{node.module}.{name.name}"
                    wanted.add(inner if inner in modules else node.module)
        wanted &= modules.keys()
    return found


def test_no_module_imports_itself_through_others() -> None:
    found = imported(SOURCE)
    assert len(found) > 300
    found = {name: wanted for name, wanted in found.items() if not name.startswith("holdfast_lab.bench")}
    assert circles(found) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from b import x\n"
    )
    (tmp_path / "b.py").write_text("def f():\n    import c\n")
    (tmp_path / "c.py").write_text("import a\n")
    (tmp_path / "d.py").write_text("import a\n")
    assert circles(imported(tmp_path)) == [["a", "b", "c"]]


# -- modules


def test_modules_are_short_enough_to_read() -> None:
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES + TESTS}
    assert {name: length for name, length in lengths.items() if length > MODULE_LINES} == {}


MODULE_IMPORTS = 31
"""Modules of ours that one module names; only the member, which puts all machines together, is near it."""


def test_no_module_knows_too_many_others() -> None:
    found = {}
    for path, tree in trees(MODULES):
        known = {
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast")
        }
        if len(known) > MODULE_IMPORTS:
            found[named(path)] = len(known)
    assert found == {}


# -- how machines know each other

HANDED_CALLABLES = {
    ("core/placement/spread.py", "Ranking"): "pure: the key that it sorts by",
    (
        "core/primary_backup/clearings.py",
        "Clearings",
    ): "may the next slice be done? Asked of the router, which is above it",
    (
        "core/primary_backup/staging_replica.py",
        "StagingReplica",
    ): "how a copy opens a map: the copies make and hold it",
}
"""What may be given a function when it is made, and why. All others hold nouns, or a protocol with real methods."""
CALLABLES = 29
"""Lines of core that name a `Callable`: tables, and functions that take functions."""


def handed_callables(tree: ast.Module) -> set[str]:
    """Classes that are given a function when they are made."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for made in node.body
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
        for argument in [*made.args.args, *made.args.kwonlyargs]
        if argument.annotation is not None and "Callable[" in ast.unparse(argument.annotation)
    }


def poked(tree: ast.Module) -> list[str]:
    """What is assigned to an attribute of something that `self` holds."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Attribute)
        and ast.unparse(node.value).startswith("self.")
    ]


def test_no_machine_is_handed_a_function() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path, tree in trees(sorted((PACKAGE / "core").rglob("*.py")))
        for name in handed_callables(tree)
    }
    assert found == HANDED_CALLABLES.keys()
    lines = [
        line
        for path in sorted((PACKAGE / "core").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "Callable[" in line
    ]
    assert len(lines) <= CALLABLES, lines


def test_a_member_only_puts_its_machines_together() -> None:
    tree = ast.parse((PACKAGE / "core" / "member.py").read_text(encoding="utf-8"))
    (member,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [one for one in ast.walk(member) if isinstance(one, ast.Lambda)] == []
    assert [one for one in poked(tree) if not one.startswith("self.out.")] == []


def test_what_is_handed_or_poked_is_seen() -> None:
    tree = ast.parse(
        "class A:\n    def __init__(self, *, f: Callable[[int], None]): self.b.c = f; self.b = f"
    )
    assert (handed_callables(tree), poked(tree)) == ({"A"}, ["self.b.c"])


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [
        named(path) for path in MODULES + TESTS if VAGUE_NAMES & {path.stem, *path.relative_to(ROOT).parts}
    ]
    assert vague == []


def test_every_public_name_is_there() -> None:
    """They are brought in only when somebody asks, so nothing else would notice one that has moved."""
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_a_file_name_says_enough_in_a_stack_trace() -> None:
    """No two modules have the same, but commands, which are called what the user types."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        if path.name not in ("__init__.py", "__main__.py") and path.parent.name != "cli":
            places.setdefault(path.name, []).append(named(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


ONE_MEANING = ("core", "engine", "server", "client")


def test_no_class_has_the_name_of_another() -> None:
    """Of what a member and its clients are made of; a name for a type counts as a class."""
    places: dict[str, list[str]] = {}
    for path, tree in trees([path for path in MODULES if path.relative_to(SOURCE).parts[1] in ONE_MEANING]):
        for node in tree.body:
            match node:
                case ast.ClassDef(name=name):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if "TypeVar" not in ast.unparse(
                    value
                ):
                    pass
                case _:
                    continue
            if not name.startswith("_") and not name.isupper() and name[0].isupper():
                places.setdefault(name, []).append(named(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [named(path) for path, tree in trees(MODULES) if tree.body and not ast.get_docstring(tree)]
    assert silent == []


# -- rules: each has one name in the whole tree, and a test that fails without it

RULE = re.compile(r"(?<![\w./-])(?:([a-z_]+)/)?([A-Z]-\d+)\b")
"""`partition_table/L-2`: the folder, then as the docstring of its module counts. Without a folder it is no name."""


def rules_of(path: Path) -> str:
    """The folder by which the rules of a module are named."""
    parts = path.relative_to(LAB if LAB in path.parents else PACKAGE).parts
    return parts[1] if parts[0] == "core" and len(parts) > 2 else parts[0]


def listed(paths: list[Path]) -> list[tuple[str, str]]:
    """Every rule that a module's docstring lists: its name, and the folder that it should have."""
    return [
        (name, rules_of(path))
        for path, tree in trees(paths)
        for name in re.findall(r"^- ([a-z_]*/?[A-Z]-\d+): ", ast.get_docstring(tree) or "", re.MULTILINE)
    ]


def marked(tree: ast.Module) -> list[str]:
    """The rules that tests of this module are marked with."""
    return [
        ast.literal_eval(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "rule"
        and ast.unparse(node.func) == "pytest.mark.rule"
        for argument in node.args
    ]


def test_every_rule_has_a_name_of_its_own() -> None:
    found = listed(MODULES)
    assert len(found) > 140
    assert [name for name, folder in found if name.partition("/")[0] != folder] == []
    names = [name for name, _ in found]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_rules_are_cited_by_their_names() -> None:
    known = {name for name, _ in listed(MODULES)}
    strange: dict[str, list[str]] = {}
    for path in [*MODULES, *TESTS, *PAGES]:
        if path == Path(__file__):
            continue
        cited = {
            f"{folder}/{rule}" if folder else rule
            for folder, rule in RULE.findall(path.read_text(encoding="utf-8"))
        }
        if unknown := sorted(cited - known):
            strange[named(path)] = unknown
    assert strange == {}


def test_a_rule_that_nobody_can_look_up_is_found() -> None:
    text = "as partition_table/L-2 says, and R-1; UTF-8, SHA-256 and x/y/Z-1 are none"
    assert RULE.findall(text) == [("partition_table", "L-2"), ("", "R-1")]


def test_every_rule_is_named_by_a_test() -> None:
    known = {name for name, _ in listed(MODULES)}
    marking = [path for path in TESTS if "mark.rule" in path.read_text(encoding="utf-8")]
    tested = {name for _, tree in trees(marking) for name in marked(tree)}
    assert tested - known == set(), "tests of rules that there are not"
    assert known - tested == set(), "rules without a test"


def test_rules_of_tests_are_found() -> None:
    text = '@pytest.mark.rule("a/B-1", "a/B-2")\n@pytest.mark.slow\ndef test_it(): ...'
    assert marked(ast.parse(text)) == ["a/B-1", "a/B-2"]


# -- one word for one thing

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def words(name: str) -> set[str]:
    """The words that a name is made of, each in the singular as well."""
    found = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return found | {word.removesuffix("s") for word in found} | {word.removesuffix("es") for word in found}


def given_up(page: str) -> set[str]:
    """The words of the last table of the glossary."""
    table = page.partition("## Words that were given up")[2]
    return {line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")} - {"given up"}


def public_names(path: Path, tree: ast.Module) -> list[str]:
    """The module's own name, and those of its classes and functions, also in classes."""
    defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [node.name for node in ast.walk(tree) if isinstance(node, defined)]
    return [path.stem, *(name for name in found if not name.startswith("_"))]


def test_each_word_of_the_glossary_has_one_meaning() -> None:
    lines = [line for line in GLOSSARY.partition("## Words that")[0].splitlines() if line.startswith("| ")]
    terms = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found = [term for term, *_ in terms if term != "term"]
    assert len(found) > 50
    assert {term for term in found if found.count(term) > 1} == set()
    assert [term for term, meaning, *_ in terms if not meaning] == []
    assert {len(cells) for cells in terms} == {4}


def test_words_that_were_given_up_do_not_come_back() -> None:
    gone = given_up(GLOSSARY)
    assert {"ledger", "shadow", "whisper"} <= gone
    back = {
        f"{named(path)}: {name}"
        for path, tree in trees([path for path in MODULES if (PACKAGE / "core") in path.parents])
        for name in public_names(path, tree)
        if words(name) & gone
    }
    assert back == set()


def test_a_word_that_comes_back_is_found() -> None:
    tree = ast.parse(
        "class NewLedger:\n    def takes_rows(self): ...\ndef _office(): ...\ndef borrowed(): ..."
    )
    names = public_names(Path("shadows.py"), tree)
    assert [name for name in names if words(name) & {"ledger", "row", "office", "shadow"}] == [
        "shadows",
        "NewLedger",
        "takes_rows",
    ]


# -- nothing executable on any wire or in any file


def executable(tree: ast.Module) -> list[str]:
    """Every way in this module to turn data into code."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name.split(".")[0] in EXECUTABLE]
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in EXECUTABLE:
                found.append(module)
            case ast.Call(func=ast.Name(id=name)) if name in EVALUATING:
                found.append(name)
            case ast.Attribute(attr="CloudPickleSerializer" | "PickleSerializer"):
                found.append(node.attr)
    return found


def test_nothing_turns_data_into_code() -> None:
    assert {named(path): found for path, tree in trees(MODULES) if (found := executable(tree))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import marshal as m",
        "eval('1')",
        "exec(x)",
        "compile(x, '', 'eval')",
    ],
)
def test_what_turns_data_into_code_is_found(text: str) -> None:
    assert executable(ast.parse(text))


# -- one order: a set has none that two runs share


def unordered(tree: ast.Module) -> list[int]:
    """Lines that go through a set in the set's own order, as far as one can see without types."""

    def is_set(node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
                return is_set(left) or is_set(right)
            case ast.Call(
                func=ast.Attribute(attr="union" | "intersection" | "difference" | "symmetric_difference")
            ):
                return True
            case _:
                return False

    # A comprehension that makes a set, or is at once counted or sorted, does not show the order.
    harmless: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.SetComp():
                harmless.add(node)
            case ast.Call(
                func=ast.Name(
                    id="sorted" | "sum" | "any" | "all" | "min" | "max" | "len" | "set" | "frozenset"
                ),
                args=[ast.GeneratorExp() | ast.ListComp() as inner, *_],
            ):
                harmless.add(inner)
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=iterated) if is_set(iterated):
                found.append(iterated.lineno)
            case ast.ListComp() | ast.DictComp() | ast.GeneratorExp() if node not in harmless:
                found += [loop.iter.lineno for loop in node.generators if is_set(loop.iter)]
            case ast.Call(func=ast.Name(id="list" | "tuple" | "iter" | "enumerate"), args=[first, *_]) if (
                is_set(first)
            ):
                found.append(first.lineno)
    return found


PURE = [
    path
    for layer in ("core", "wire", "server", "engine", "check", "observe", "sim")
    for path in (PACKAGE / layer).rglob("*.py")
]


def test_no_protocol_depends_on_the_order_of_a_set() -> None:
    assert {named(path): lines for path, tree in trees(sorted(PURE)) if (lines := unordered(tree))} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("for x in {1, 2}: pass", 1),
        ("for x in set(y): pass", 1),
        ("for x in set(y) - z: pass", 1),
        ("z = [x for x in {a for a in b}]", 1),
        ("z = list(set(y))", 1),
        ("for x in a.union(b): pass", 1),
        ("for x in sorted({1, 2}): pass", 0),
        ("z = sum(x for x in {1, 2})", 0),
        ("z = {x for x in set(y)}", 0),
        ("for x in [1, 2]: pass", 0),
    ],
)
def test_the_order_of_a_set_is_noticed(text: str, count: int) -> None:
    assert len(unordered(ast.parse(text))) == count


def test_the_same_seed_is_the_same_run_whatever_the_hash_of_a_text() -> None:
    """The order of a set of texts changes with every process; no trace may depend on it."""
    code = "from holdfast_lab.sim.run import simulate; print(simulate(96).trace_hash)"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    traces = {run.communicate(timeout=120)[0].strip() for run in both}
    assert [run.returncode for run in both] == [0, 0]
    assert len(traces) == 1
    assert traces != {""}


# -- settings


def test_every_setting_does_something() -> None:
    """A key that nobody reads is a promise that nobody keeps."""
    read = {
        node.attr
        for path, tree in trees([path for path in MODULES if path.parent != PACKAGE / "config"])
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }
    # Members compare the shared keys as text; the checks of the schema are readers of their own, and what the secrets
    # of members are, and whether an address is too open, the settings say themselves.
    elsewhere = {"name", "username", "password", "token"}
    elsewhere |= {"member_secret", "second_member_secret", "allow_insecure_bind"}
    assert {key.dotted for key in schema() if key.name not in read | elsewhere} == set()


# -- what is written down


def tracked() -> list[Path]:
    """Every file of ours: what git has, and what it would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked release has no history
        paths = [path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


def test_no_file_names_the_host_of_a_package_index() -> None:
    """Where packages come from is decided by the settings of whoever installs."""
    small = [path for path in tracked() if path.stat().st_size < 5_000_000]
    naming = [
        path for path in small if INDEX_HOSTS.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert [named(path) for path in naming] == []


def test_the_host_of_a_package_index_is_found() -> None:
    for host in (("files.py", "thonhosted.org"), ("py", "pi.org"), ("registry.np", "mjs.org")):
        assert INDEX_HOSTS.search(f"https://{''.join(host)}/x")


FOREIGN = re.compile(r"pip install (?:-[\w-]+ )*['\"]?holdfast(?![\w-])")
"""What would install somebody else's package: ours is called holdfast-grid."""


def test_no_file_says_to_install_a_package_of_others() -> None:
    small = [path for path in tracked() if path.stat().st_size < 5_000_000]
    naming = [path for path in small if FOREIGN.search(path.read_text(encoding="utf-8", errors="replace"))]
    assert [named(path) for path in naming] == []


def test_the_package_of_others_is_found() -> None:
    for end in ("holdfast", "'holdfast[arrow]'", '-U "holdfast"', "holdfast fastapi"):
        assert FOREIGN.search(f"pip install {end}"), end
    for end in (".", "'.[arrow]'", "dist/holdfast_grid-1.whl", "holdfast-grid"):
        assert not FOREIGN.search(f"pip install {end}"), end


def test_every_locked_package_has_a_hash() -> None:
    for lock in sorted(ROOT.glob("requirements*.lock")):
        text = lock.read_text(encoding="utf-8")
        pinned = re.findall(r"^[a-z0-9].*==.*\\\n    --hash=sha256:", text, re.MULTILINE)
        assert len(pinned) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)) > 0, lock.name
        assert "://" not in text, lock.name


PAGES = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if path.is_file()]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands(text: str) -> tuple[set[str], set[str], set[str]]:
    """The make targets, and the commands of `holdfast` and of the laboratory, that a page tells people to use."""
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    makes = set(re.findall(r"(?:^|[`;&\s])make ([a-z][a-z-]*)", code))
    ours = set(re.findall(r"(?:^|[`/;&$]|\n\s*)(?:\$ )?(?:\.venv/bin/)?holdfast ([a-z]+)", code))
    labs = set(re.findall(r"python -m holdfast_lab ([a-z]+)", code))
    return makes, ours, labs


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_name_only_commands_that_exist(page: Path) -> None:
    makes, ours, labs = commands(page.read_text(encoding="utf-8"))
    assert makes <= TARGETS
    if page.name != "CHANGELOG.md":  # it also says what a command was called before
        assert ours <= set(COMMANDS)
        assert labs <= set(LAB_COMMANDS)


def test_commands_of_a_page_are_found() -> None:
    text = (
        "Say `make x` or `holdfast go` or `python -m holdfast_lab try`.\n"
        "```sh\nmake y && .venv/bin/holdfast run --now\n$ holdfast z\n```\nmake no"
    )
    assert commands(text) == ({"x", "y"}, {"go", "run", "z"}, {"try"})


def tree_of(source: Path) -> str:
    """Every folder of the sources, with the first sentence of its docstring."""
    lines = []
    for init in sorted(source.rglob("__init__.py")):
        docstring = ast.get_docstring(parsed(init))
        assert docstring, f"{named(init)} does not say what the folder is for"
        first = docstring.split("\n\n")[0].replace("\n", " ")
        depth = len(init.relative_to(source).parts) - 2
        lines.append(f"{'  ' * depth + init.parent.name + '/':<24}{first}")
    return "\n".join(lines) + "\n"


def test_the_architecture_page_shows_every_folder(request: pytest.FixtureRequest) -> None:
    """`pytest tests/test_house.py --rewrite` writes it again."""
    page = ROOT / "ARCHITECTURE.md"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition("## The tree")
    head, drawn, *after = rest.split("```")
    wanted = "text\n" + tree_of(SOURCE)
    if request.config.getoption("--rewrite"):
        page.write_text(before + "## The tree" + "```".join([head, wanted, *after]), encoding="utf-8")
    else:
        assert drawn == wanted


def named_paths(text: str) -> set[str]:
    """Paths of modules and pages in backticks, with at least one folder."""
    return set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|pyx|pxd|md|toml))(?:::\w+)?`", text))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=named)
def test_pages_name_only_files_that_exist(page: Path) -> None:
    """A path may begin below the sources, their core, or the tests."""
    roots = [ROOT, SOURCE, PACKAGE, PACKAGE / "core", ROOT / "tests", page.parent]
    gone = {
        path
        for path in named_paths(page.read_text(encoding="utf-8"))
        if not path.startswith("out/") and not any((root / path).is_file() for root in roots)
    }
    assert gone == set()


ELSEWHERE = {"cluster", "interop", "ops", "stories", "lab/sim/scenarios", "lab/sim/transaction_scenarios"}
"""Folders of tests of whole members, and of what is not in `src`."""


def test_folders_of_tests_are_those_of_modules() -> None:
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path()}
    other = {
        folder.as_posix()
        for folder in folders
        if not (LAB.joinpath(*folder.parts[1:]) if folder.parts[0] == "lab" else PACKAGE / folder).is_dir()
    }
    assert other == ELSEWHERE


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=named)
def test_pages_name_only_tests_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    gone = [folder for folder in re.findall(r"`(tests(?:/\w+)+)/?`", text) if not (ROOT / folder).is_dir()]
    gone += [
        f"{file}::{test}"
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
        if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert gone == []


def test_paths_in_a_page_are_found() -> None:
    text = "`core/a.py` and docs/b.md, `c.py`, `tests/d.toml`, `tests/e.py::test_f`"
    assert named_paths(text) == {"core/a.py", "tests/d.toml", "tests/e.py"}


def defines(module: str, name: str) -> bool:
    """Whether this module of ours defines a class, a function or a constant of this name."""
    path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return False
    return bool(re.search(rf"^(?:class |def )?{name}\b", path.read_text(encoding="utf-8"), re.MULTILINE))


def is_module(name: str) -> bool:
    place = SOURCE.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_new_names_of_renamed_modules_exist() -> None:
    """Programs outside read the table: a new name that is wrong is worse than none."""
    table = tomllib.loads((ROOT / "docs" / "renames.toml").read_text(encoding="utf-8"))
    new = [*table["modules"].values()]
    new += [f"{module}.{name}" for module, names in table["classes"].items() for name in names.values()]
    assert len(new) > 100
    assert [name for name in new if not is_module(name) and not defines(*name.rsplit(".", 1))] == []


def test_every_target_is_explained() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    declared = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert declared
    assert set(declared[1].split()) == TARGETS
    explained = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert TARGETS - explained == {"install", "java", "node", "java-client", "java-clients", "go-client"}


@pytest.mark.slow
def test_the_wheel_says_that_it_is_typed(tmp_path: Path) -> None:
    """Without `py.typed` a type checker does not look at the annotations of an installed package."""
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert {"holdfast/py.typed", "holdfast/__main__.py", "holdfast/console/console.html"} <= set(
        zipfile.ZipFile(wheel).namelist()
    )


def test_ci_runs_the_suite() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", script], check=True)


def test_addresses_are_formatted_in_one_place() -> None:
    """`f"{host}:{port}"` makes `::1:5701` of an IPv6 address, which nothing can read again."""
    by_hand = re.compile(r"host(['\"]\])?\}:\{|host \+ \":\"")
    found = {
        named(path)
        for path in MODULES
        if by_hand.search(path.read_text(encoding="utf-8")) and path.name != "addresses.py"
    }
    assert found == set()


def test_the_readme_is_read_in_ten_minutes() -> None:
    """At most 200 lines, with a picture, a start before the two commands, and no figure left to fill in."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    assert "@@" not in text
    assert "![" in text
    assert text.index("holdfast start") < text.index("make demo")
