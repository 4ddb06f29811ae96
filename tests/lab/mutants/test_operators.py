"""Which mistakes are made in a module, and that each can be made and taken back."""

from __future__ import annotations

import ast

import pytest

from holdfast_lab.mutants.operators import mutants


def changes(body: str) -> set[str]:
    """What is changed in a function with this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    tree = ast.parse(f"def f(self, a, b, c):\n{lines}\n")
    return {mutant.key.removeprefix("f: ") for mutant in mutants(tree)}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {"a < b -> a <= b", "a < b -> a >= b", "return a < b -> return None"}),
        ("return a in b", {"a in b -> a not in b"}),
        ("return a and b", {"a and b -> a or b", "a and b -> a", "a and b -> b"}),
        ("return not a", {"not a -> a"}),
        ("return a + b", {"a + b -> a - b"}),
        ("return a[0]", {"in a[0]: 0 -> 1"}),
        ("return True", {"True -> False"}),
        ("return max(a, key=b)", {"max(a, key=b) -> min(a, key=b)", "max(a, key=b) -> max(a)"}),
        ("self.x = a", {"self.x = a -> pass"}),
        ("a = b", {"a = b -> pass"}),
        ("self.x += a", {"self.x += a -> pass", "self.x += a -> self.x -= a"}),
        ("self.g(a, b)", {"self.g(a, b) -> pass", "self.g(a, b) -> self.g(b, a)"}),
        ("while a:\n    continue", {"continue -> pass", "continue -> break", "a -> not a", "a -> False"}),
        ("if a:\n    return", {"a -> not a", "a -> True", "a -> False", "return -> pass"}),
        ("return [x for x in a if x]", {"in [x for x in a if x]: x -> True"}),
    ],
)
def test_a_mistake_is_made(body: str, expected: set[str]) -> None:
    assert expected <= changes(body)


@pytest.mark.parametrize(
    "body",
    [
        "assert a < b",
        "new = a",
        "return f'{a + 1}'",
        "'''Words.'''",
        "if a is None:\n    x: int",
        "import os",
    ],
)
def test_what_is_not_code_or_could_not_run_is_left_alone(body: str) -> None:
    assert not {
        change for change in changes(body) if change.startswith(("a <", "new", "a +", "'", "x", "import"))
    }


def test_each_mistake_has_a_name_of_its_own_that_does_not_depend_on_lines() -> None:
    text = "class C:\n def f(self, a):\n  if a > 1:\n   return\n  if a > 1:\n   return\n"
    keys = [mutant.key for mutant in mutants(ast.parse(text))]
    assert len(keys) == len(set(keys))
    assert {"C.f: in a > 1: 1 -> 0", "C.f: in a > 1: 1 -> 0 (2)"} <= set(keys)
    assert keys == [mutant.key for mutant in mutants(ast.parse(f"\n\n{text}"))]


def test_a_mistake_is_taken_back() -> None:
    tree = ast.parse(
        "LIMIT = 3\ndef f(a=1):\n    if a < LIMIT and not a:\n        a += 1\n    return max(a, 2)\n"
    )
    clean = ast.unparse(tree)
    found = mutants(tree)
    assert len(found) > 10
    for mutant in found:
        with mutant.made():
            assert ast.unparse(tree) != clean, mutant.key
            compile(tree, "f", "exec")
        assert ast.unparse(tree) == clean
    assert {mutant.key for mutant in found if not mutant.inside} == {
        "module: 3 -> 4",
        "f: 1 -> 0",
    }, "what is no code of a function"
