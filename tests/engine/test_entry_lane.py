"""The data lane is the one way past events: sessions use what `EntryLane` says, and nothing else of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from holdfast.core.primary_backup.lane import Lane
from holdfast.engine import entry_lane
from holdfast.engine.recording import RecordedLane

SOURCE = Path(entry_lane.__file__).parents[1]
LANES = {"lane", "_lane"}
"""What a variable or attribute with the lane of a member is called."""


def stated() -> set[str]:
    """What the interface lists."""
    tree = ast.parse(Path(entry_lane.__file__).read_text(encoding="utf-8"))
    (protocol,) = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    calls = {one.name for one in protocol.body if isinstance(one, ast.FunctionDef)}
    return calls | {one.target.id for one in protocol.body if isinstance(one, ast.AnnAssign)}  # type: ignore[union-attr]


def used(text: str) -> set[str]:
    """What is read of a lane."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            of = node.value
            name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
            if name in LANES:
                found.add(node.attr)
    return found


def test_sessions_use_what_is_stated_and_no_more() -> None:
    sessions = [*(SOURCE / "server").rglob("*.py"), SOURCE.parent / "holdfast_lab" / "sim" / "workload.py"]
    found = {path.name: used(path.read_text(encoding="utf-8")) - stated() for path in sessions}
    # These two are no sessions: one looks at its member's lane, the other serves the frames of other members.
    others = {"member_grid.py", "frame_serving.py"}
    assert {name: more for name, more in found.items() if more and name not in others} == {}


def test_the_look_sees_a_call_that_is_not_stated() -> None:
    assert used("self._lane.sweep(1)\nlane.seal(done)\n") == {"sweep", "seal"}


def test_everything_that_is_stated_is_used() -> None:
    everywhere = set()
    poll = SOURCE / "runtime" / "doors" / "poll_cy.py"
    for path in (poll, *(SOURCE / "server").rglob("*.py")):
        everywhere |= used(path.read_text(encoding="utf-8"))
    for path in (SOURCE / "server").rglob("*.pyx"):  # Cython, which `ast` cannot parse.
        everywhere |= set(re.findall(r"\blane\.(\w+)", path.read_text(encoding="utf-8")))
    assert stated() - everywhere - {"listening"} == set()


def test_the_lane_and_its_record_have_all_of_it() -> None:
    for kind in (Lane, RecordedLane):
        source = Path(__import__(kind.__module__, fromlist=["x"]).__file__).read_text(encoding="utf-8")
        assert [name for name in sorted(stated()) if name not in source] == []
