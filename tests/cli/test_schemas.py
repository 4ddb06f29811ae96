"""docs/schemas is made from the types of the commands' answers: `pytest tests/cli/test_schemas.py --rewrite`.

That commands print what their schema says, `tests/json_answers.py` checks whenever a test lets one print JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import msgspec.inspect
import pytest

from holdfast.cli.answers import Answer
from holdfast.cli.exit_statuses import all_commands
from holdfast.cli.main import holdfast
from holdfast.cli.operator_command import Answers
from holdfast_lab.cli.main import holdfast_lab

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
FORMS = {False: "One object.", True: "One object a line."}
COMMANDS = {
    f"{program} {path}": (path, command.answers)
    for program, group in (("holdfast", holdfast), ("python -m holdfast_lab", holdfast_lab))
    for path, command in all_commands(group).items()
    if getattr(command, "answers", None) is not None
}


def schema(name: str, answers: Answers) -> dict[str, Any]:
    """The schema of what the command with this name prints."""
    made, found = msgspec.json.schema_components(answers.kinds, ref_template="#/$defs/{name}")
    omitting = names_omitting_defaults(answers.kinds)
    components = {title: one if title in omitting else all_required(one) for title, one in found.items()}
    first = made[0]
    if len(made) == 1:
        if "$ref" in first:
            first = components.pop(first["$ref"].removeprefix("#/$defs/"))
        about = first.pop("description", "")
        first.pop("title", None)
    else:
        about, first = "", {"anyOf": list(made)}
    told = {"title": f"{name} --json", "description": f"{about} {FORMS[answers.many]}".strip()}
    rest = {"$defs": dict(sorted(components.items()))} if components else {}
    return {"$schema": DIALECT, **told, **first, **rest}


def names_omitting_defaults(kinds: Sequence[Any]) -> set[str]:
    """Structs that are printed without the fields that have their default, such as assignments of zones."""
    found: set[str] = set()
    left: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    seen: set[type] = set()
    while left:
        kind = left.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls in seen:
                continue
            seen.add(kind.cls)
            if kind.cls.__struct_config__.omit_defaults:
                found.add(kind.cls.__name__)
            left += [field.type for field in kind.fields]
        elif isinstance(kind, msgspec.inspect.UnionType):
            left += kind.types
        else:
            parts = (
                getattr(kind, name, None) for name in ("item_type", "key_type", "value_type", "item_types")
            )
            for part in parts:
                left += part if isinstance(part, tuple) else [part] if part is not None else []
    return found


def all_required(component: dict[str, Any]) -> dict[str, Any]:
    """A field with a default is printed always; one without a value (UNSET) has none."""
    properties = component.get("properties", {})
    given = component.get("required", ())
    always = [name for name, one in properties.items() if name in given or "default" in one]
    for one in properties.values():
        one.pop("default", None)
    return {**component, "required": always} if always else component


@pytest.mark.parametrize("name", COMMANDS)
def test_the_schema_is_that_of_the_answers(name: str, request: pytest.FixtureRequest) -> None:
    path, answers = COMMANDS[name]
    file = FOLDER / f"{path.replace(' ', '-')}.json"
    wanted = json.dumps(schema(name, answers), indent=2) + "\n"
    if request.config.getoption("--rewrite"):
        file.write_text(wanted, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == wanted, "write it again: --rewrite"


class Inner(msgspec.Struct):
    """A part."""

    number: Annotated[int, msgspec.Meta(description="how many")]
    note: str | msgspec.UnsetType = msgspec.UNSET


class Whole(Answer, kw_only=True):
    """A whole."""

    parts: list[Inner] = msgspec.field(default_factory=list)
    data: dict[str, Any]


def test_a_schema_says_what_is_always_there() -> None:
    assert schema("x", Answers((Whole,), many=True)) == {
        "$schema": DIALECT,
        "title": "x --json",
        "description": "A whole. One object a line.",
        "type": "object",
        "properties": {
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Inner"}},
            "data": {"type": "object"},
        },
        "required": ["parts", "data"],
        "$defs": {
            "Inner": {
                "title": "Inner",
                "description": "A part.",
                "type": "object",
                "properties": {
                    "number": {"type": "integer", "description": "how many"},
                    "note": {"type": "string"},
                },
                "required": ["number"],
            }
        },
    }
