"""Who looks at a member looks at its picture: nobody outside core reaches through the member into a machine."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path

from holdfast.core import member

PACKAGE = Path(member.__file__).parents[1]
LAB = PACKAGE.parent / "holdfast_lab"
FREE = {"me", "settings", "out", "picture", "handle", "recovered"}
"""Of a member: no machine."""
OWN = {"membership", "table_replication", "activation", "router", "listeners", "ack_clients"}
"""Machines whose names nothing else in the package has: they are found under whatever name a member goes by."""
PATCHED = "holdfast_lab/sim/ablations/"
"""Careless twins of rules stand in the place of what a machine does, and do it with that machine."""
FAR = tuple(
    f"holdfast_lab/{name}/" for name in ("bench", "mutants", "processes", "demo", "chaos", "fuzz", "cli")
)
"""Programs that have no member in their process, or measure one."""
EFFECTS = "actions/"
"""Declarations of operator actions: the effect of an action is an order to the machine that carries it out."""
ALLOWED = {
    ("engine/driver.py", "lane"): "the data lane, and whether it has something that is to leave",
    ("engine/driver.py", "open_step"): "whether the present step has an end to come",
    ("engine/replay.py", "lane"): "calls of the data lane that are lived again",
    ("server/member_grid.py", "router"): "which maps sessions may serve directly, asked for each buffer",
    ("holdfast_lab/check/leader_tables.py", "copies"): "the tables of leaders that clients get",
    ("server/member_grid.py", "copies"): "cuts for sessions: who reads one goes on with its lease",
    ("engine/driver.py", "serving"): "which requests the data lane forwards, asked for each of them",
    (
        "holdfast_lab/sim/cluster.py",
        "lane",
    ): "judged is at the moment at which a primary has all of its writes acknowledged",
    ("holdfast_lab/sim/cutting.py", "copies"): "a reader of cuts, as a session is: with its lease",
    (
        "holdfast_lab/sim/processor_user.py",
        "copies",
    ): "the value that the runs have left is read where it is led, on either engine",
    (
        "holdfast_lab/sim/queueing.py",
        "copies",
    ): "what is left in the queue is read where it is led, on either engine",
    (
        "holdfast_lab/sim/cp_user.py",
        "copies",
    ): "what CP objects hold is read where they are led, on either engine",
    ("holdfast_lab/sim/matrix/stage.py", "migrations"): "the layout of a case is made by hand, and asked for",
}
"""What else may be reached, and why."""


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
        if isinstance(node, ast.Attribute) and node.attr in machines() and _is_of_a_member(node)
    )


def _is_of_a_member(node: ast.Attribute) -> bool:
    through = node.value
    name = through.attr if isinstance(through, ast.Attribute) else getattr(through, "id", "")
    return name in ("member", "_member") or (node.attr in OWN and name != "self")


def test_nobody_reaches_in_but_who_has_a_reason() -> None:
    paths = {path: path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    paths |= {path: path.relative_to(PACKAGE.parent).as_posix() for path in LAB.rglob("*.py")}
    found = {
        (name, machine)
        for path, name in paths.items()
        if not name.startswith(("core/", "spark/", EFFECTS, PATCHED, *FAR))
        for machine in reached(path.read_text(encoding="utf-8"))
    }
    assert found == ALLOWED.keys()


def test_judges_are_shown_pictures_and_no_members() -> None:
    judges = [path.read_text(encoding="utf-8") for path in (LAB / "check").glob("*.py")]
    assert not any("core.member import" in text for text in judges)
    assert sum("core.member_view import MemberView" in text for text in judges) == 5


def test_the_look_sees_who_reaches_in() -> None:
    assert {"lane", "table", "copies", *OWN} <= machines()
    text = "member.lane.seal(x)\nself.node.member.table.rows\nmember.picture.assignments\nself._member.membership\n"
    assert reached(text) == {"lane": 1, "table": 1, "membership": 1}
    assert reached("mine.listeners.subscribers(x)\nself.router.execute(y)\nlife.table\n") == {"listeners": 1}
