"""Who looks at a member looks at its picture: nobody outside core reaches through the member into a machine."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path

from holdfast.core import member

PACKAGE = Path(member.__file__).parents[1]
FREE = {"me", "settings", "out", "picture", "handle", "recovered"}
"""Of a member: no machine."""
INSIDE = {
    "check": "judges of everything that a member holds",
    "sim": "faults, judges and ablations look at, and into, every machine on purpose",
}
"""Folders that may, and why."""
ALLOWED = {
    ("engine/driver.py", "lane"): "the data lane, and whether it has something that is to leave",
    ("engine/replaying.py", "lane"): "calls of the data lane that are lived again",
    ("runtime/embedded.py", "router"): "an id for a request of the in-process API",
    ("server/member_grid.py", "copies"): "pins of cuts, for sessions that read them",
    ("server/member_grid.py", "changes"): "heads of change streams, for sessions",
}
"""What else may be read, and why."""


@functools.cache
def machines() -> set[str]:
    """What a member consists of: the attributes that it sets, but for those that are free."""
    tree = ast.parse(Path(member.__file__).read_text(encoding="utf-8"))
    found = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return {name for name in found if not name.startswith("_")} - FREE


def reached(text: str) -> Counter[str]:
    """The machines that are reached through a member."""
    return Counter(
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr in machines()
        and (
            (isinstance(node.value, ast.Attribute) and node.value.attr in ("member", "_member"))
            or (isinstance(node.value, ast.Name) and node.value.id == "member")
        )
    )


def test_nobody_reaches_in_but_who_has_a_reason() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("core", "demo", "spark", *INSIDE)
        for name in reached(path.read_text(encoding="utf-8"))
    }
    assert found == ALLOWED.keys()


def test_the_look_sees_who_reaches_in() -> None:
    assert {"lane", "membership", "router", "copies", "table", "serving"} <= machines()
    text = "member.lane.seal(x)\nself.node.member.table.rows\nmember.picture.assignments\nself._member.membership\n"
    assert reached(text) == {"lane": 1, "table": 1, "membership": 1}
