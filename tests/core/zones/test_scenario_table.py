"""The table of the acceptance scenarios: each is named by a test, or it is said why it cannot apply."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
COMPONENT = {f"sc{number:02}" for number in range(1, 13)}
INTEGRATION = {str(number) for number in range(1, 61)}

NOT_APPLICABLE = {
    "4": "how long a retry waits is no setting: it grows by itself, with jitter (docs/zones.md, the controller)",
    "19": "there are no rebalance metrics of a partition; `zone show` counts what moves from the keys themselves",
    "42": "there are no transactions",
    "47": "there are no schemas: what is in the log can be applied by every replica",
    "55": "there are no leases: who leads a group serves, and each read is confirmed by a majority",
}

NAME = re.compile(r"\bdef test_((?:sc)?\d+(?:_(?:and_)?(?:sc)?\d+)*)_[a-z]")
SAID = re.compile(r"\bScenarios? (\d+(?:(?:, | and )\d+)*)\b")


def shown() -> set[str]:
    """The scenarios that tests name, in their own name or in what they say of themselves."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for names in (*NAME.findall(text), *SAID.findall(text)):
            found.update(re.findall(r"(?:sc)?\d+", names))
    return found


def test_every_scenario_is_shown_or_it_is_said_why_not() -> None:
    wanted = COMPONENT | INTEGRATION
    named = shown() & wanted
    assert named & NOT_APPLICABLE.keys() == set(), "it applies after all"
    assert sorted(wanted - named - NOT_APPLICABLE.keys()) == []
    assert all(NOT_APPLICABLE.values())


def test_the_table_reads_names_as_they_are_written() -> None:
    name = "test_17_22_sc09_a_majority"
    assert NAME.findall(f"def {name}(") == ["17_22_sc09"]
    assert NAME.findall("def test_" + "8_and_9_a_member(") == ["8_and_9"]
    assert NAME.findall("def test_" + "a_state_of_8_pieces(") == []
