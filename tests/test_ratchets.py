"""Counts that may only fall: complexity, sizes, names that do not match, and words of the old dialect.

What exceeds a limit today stands in `tests/ratchets.toml`. A new exception fails here; so does an old one that grows.
After an improvement `pytest tests/test_ratchets.py --rewrite` lowers the recorded counts, and never raises one.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
RECORD = ROOT / "tests" / "ratchets.toml"
SCRIPTS = ("holdfast_lab/bench/", "holdfast_lab/mutants/")
"""Programs that measure the rest; their inside is not judged."""

COMPLEXITY_MAX = 15
PARAMETERS_MAX = 8
FUNCTION_LINES_MAX = 70
METHODS_MAX = 40
ATTRIBUTES_MAX = 30
SUBJECT_MAX = 72
SUBJECTS_SINCE = "2026-11-28T16:30:00+00:00"

DIALECT = {
    "whoever": r"\bwhoever\b",
    "anew": r"\banew\b",
    "is told": r"\b(?:is|are) told\b",
    "of which": r"\bof (?:which|whom)\b",
    "nobody": r"\bnobody\b",
    "why_": r"\bdef _*why_",
    "What/Who/Of": r"(?:^|[.!?:]\s+|\"\"\")(?:What|Who|Of)\s(?![^.?!\n]*\?)",
}
"""Words and beginnings of sentences that plain English does without. A question may begin with What or Who."""

Counts = dict[str, int]


def modules() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.relative_to(SOURCE).as_posix().startswith(SCRIPTS)
    ]


def place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def of_ruff(root: Path) -> Counts:
    """Functions above the limits of C901 and PLR0913: `path function code`, and their figure."""
    told = subprocess.run(
        [
            sys.executable, "-m", "ruff", "check", str(root), "--isolated", "--ignore-noqa", "--no-cache",
            "--select", "C901,PLR0913", "--target-version", "py311", "--output-format", "json",
            "--config", f"lint.mccabe.max-complexity={COMPLEXITY_MAX}",
            "--config", f"lint.pylint.max-args={PARAMETERS_MAX}",
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    found: Counts = {}
    for each in json.loads(told.stdout):
        path = Path(each["filename"])
        where = path.resolve().relative_to(root.resolve()).as_posix()
        if where.startswith(SCRIPTS):
            continue
        name = function_at(path, each["location"]["row"])
        figures = re.search(r"\((\d+) > \d+\)", each["message"])
        assert figures, each["message"]
        found[f"{where} {name} {each['code']}"] = int(figures[1])
    return found


def function_at(path: Path, row: int) -> str:
    """The name of the function whose head has this line."""
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.lineno <= row <= node.body[0].lineno
        ):
            found = node.name
    return found


parsed = lru_cache(maxsize=1)(ast.parse)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """What may contain functions and classes: half of the time would be spent on expressions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child)


def sizes(path: Path, text: str) -> Counts:
    """Functions with too many lines, classes with too many methods or attributes."""
    found: Counts = {}
    for node in statements(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found[f"{place(path)} {node.name} lines"] = lines
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            attributes = {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and isinstance(each.value, ast.Name)
                and each.value.id == "self"
            }
            if len(methods) > METHODS_MAX:
                found[f"{place(path)} {node.name} methods"] = len(methods)
            if len(attributes) > ATTRIBUTES_MAX:
                found[f"{place(path)} {node.name} attributes"] = len(attributes)
    return found


def of_cython(path: Path, text: str) -> Counts:
    """Functions of a `.pyx` file above the limits of lines or complexity (C901), which ruff cannot read."""
    found: Counts = {}
    bare = re.sub(r'"""(?s:.*?)"""|"[^"\n]*"|#.*', lambda it: "\n" * it[0].count("\n"), text)
    heads = r"^([ ]*)(?:cdef|cpdef|def)\b[^=\n]*?(\w+)\((?:[^()]|\([^()]*\))*\)[^:\n]*:\n((?:\1[ ]+.*\n|\n)*)"
    for head in re.finditer(heads, bare, re.MULTILINE):
        lines = head[0].rstrip().count("\n") + 1
        complexity = 1 + len(re.findall(r"\b(?:if|elif|for|while|except|case)\b", head[3]))
        if lines > FUNCTION_LINES_MAX:
            found[f"{place(path)} {head[2]} lines"] = lines
        if complexity > COMPLEXITY_MAX:
            found[f"{place(path)} {head[2]} C901"] = complexity
    return found


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def misnamed(path: Path, text: str) -> Counts:
    """A module of which one class is at least half bears that class's name."""
    if path.stem.startswith("__") or path.parent.name == "cli":
        return {}
    classes = {
        node.name: (node.end_lineno or 0) - node.lineno
        for node in parsed(text).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    main = max(classes, key=classes.__getitem__, default="")
    if not main or classes[main] * 2 < len(text.splitlines()):
        return {}
    return {} if snake(main) == path.stem.removesuffix("_cy") else {f"{place(path)} {main}": 1}


def dialect(text: str) -> int:
    return sum(len(re.findall(pattern, text, re.MULTILINE | re.IGNORECASE if word != "What/Who/Of" else re.MULTILINE))
               for word, pattern in DIALECT.items())  # fmt: skip


def folder(path: Path) -> str:
    """Two levels below `src`, the top folder elsewhere."""
    if SOURCE in path.parents:
        return "/".join(("src", *path.relative_to(SOURCE).parts[:-1][:3]))
    return path.relative_to(ROOT).parts[0] if path.parent != ROOT else path.name


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def counted() -> dict[str, Counts]:
    """Everything that is recorded, as it is now."""
    complexity, size, names = of_ruff(SOURCE), Counter[str](), Counter[str]()
    words = Counter[str]()
    for path in modules():
        text = path.read_text(encoding="utf-8")
        size.update(sizes(path, text))
        names.update(misnamed(path, text))
        words[folder(path)] += dialect(text)
    for path in sorted(SOURCE.rglob("*.pyx")):
        size.update(of_cython(path, path.read_text(encoding="utf-8")))
    for path in pages():
        words[folder(path)] += dialect(path.read_text(encoding="utf-8"))
    return {
        "complexity": complexity,
        "sizes": dict(size),
        "module_names": dict(names),
        "dialect": {name: count for name, count in words.items() if count},
    }


def written(record: dict[str, Counts]) -> str:
    lines = ["# Written by `pytest tests/test_ratchets.py --rewrite`, which only lowers counts."]
    for table, counts in record.items():
        lines += ["", f"[{table}]", *(f'"{name}" = {count}' for name, count in sorted(counts.items()))]
    return "\n".join(lines) + "\n"


def risen(now: Counts, recorded: Counts) -> dict[str, tuple[int, int]]:
    return {
        name: (recorded.get(name, 0), count) for name, count in now.items() if count > recorded.get(name, 0)
    }


def test_no_count_rises(request: pytest.FixtureRequest) -> None:
    now = counted()
    recorded = tomllib.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else now
    if request.config.getoption("--rewrite"):
        lowered = {
            table: {name: min(count, recorded.get(table, {}).get(name, 0)) for name, count in counts.items()}
            for table, counts in now.items()
        }
        lowered = {
            table: {name: count for name, count in counts.items() if count}
            for table, counts in lowered.items()
        }
        RECORD.write_text(written(lowered), encoding="utf-8")
    assert {
        table: up for table, counts in now.items() if (up := risen(counts, recorded.get(table, {})))
    } == {}


def test_each_kind_of_count_is_seen_to_rise(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "def f(a, b, c, d, e, f, g, h, i):\n" + "    if a: pass\n" * (COMPLEXITY_MAX + 1)
    )
    assert of_ruff(tmp_path) == {"a.py f C901": COMPLEXITY_MAX + 2, "a.py f PLR0913": PARAMETERS_MAX + 1}
    path = SOURCE / "holdfast" / "other.py"
    long = "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX
    many = "class A:\n" + "    def f(self): self.a = 1\n" * (METHODS_MAX + 1)
    wide = "class A:\n    def f(self):\n" + "".join(
        f"        self.a{n} = 1\n" for n in range(ATTRIBUTES_MAX + 1)
    )
    assert list(sizes(path, long)) == ["holdfast/other.py f lines"]
    assert list(sizes(path, many)) == ["holdfast/other.py A methods"]
    assert list(sizes(path, wide)) == ["holdfast/other.py A attributes"]
    c = path.with_suffix(".pyx")
    assert of_cython(c, "cdef int f(a, int b) except -1:\n" + "    pass\n" * FUNCTION_LINES_MAX) == {
        "holdfast/other.pyx f lines": FUNCTION_LINES_MAX + 1
    }
    odd = (
        "cdef class A:\n    def f(self):\n        pass  # if\n\n    cdef g(self):\n"
        + "        if a: pass\n" * 15
    )
    assert of_cython(c, odd) == {"holdfast/other.pyx g C901": 16}
    assert misnamed(path, wide) == {"holdfast/other.py A": 1}
    assert misnamed(path.with_name("a.py"), wide) == {}
    assert dialect('"""What is kept. Whoever is told so begins anew, of which nobody knows."""') == 6
    assert dialect('"""What is kept? A member reports it."""') == 0
    assert dialect("def why_unsafe(): ...\ndef unsafe_reason(): ...") == 1
    assert risen({"a": 2, "b": 1, "c": 1}, {"a": 1, "b": 1}) == {"a": (1, 2), "c": (0, 1)}


def subjects() -> list[str]:
    """Subjects of commits since the rule holds; none where there is no history."""
    log = subprocess.run(
        ["git", "log", "--no-merges", f"--since={SUBJECTS_SINCE}", "--format=%s"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return log.stdout.splitlines() if log.returncode == 0 else []


def bad_subjects(lines: list[str]) -> list[str]:
    return [
        line for line in lines if len(line) > SUBJECT_MAX or not re.match(r"[a-z][a-z0-9_/., -]*: \S", line)
    ]


def test_commit_subjects_name_a_component_and_fit_a_line() -> None:
    assert bad_subjects(subjects()) == []


def test_a_bad_subject_is_found() -> None:
    good, long, bare = "raft: reject votes from removed voters", "raft: " + "x" * SUBJECT_MAX, "Fix it"
    assert bad_subjects([good, long, bare]) == [long, bare]
