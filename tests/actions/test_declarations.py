"""Declarations of operator actions: every module is found, every part is there, and what is made from them agrees."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import jsonschema
import msgspec
import pytest
from click.testing import CliRunner

from holdfast import actions
from holdfast.actions.operator_action import (
    AnsweredAction,
    OperatorAction,
    OperatorQuery,
    ProcessAction,
    Target,
)
from holdfast.actions.reference import described, reference_page
from holdfast.actions.registry import ACTIONS, action_of, read_action
from holdfast.cli.exit_statuses import all_commands
from holdfast.cli.main import holdfast
from holdfast.config.permissions import ACTIONS as PERMISSIONS
from holdfast.errors import ProtocolError

PAGE = Path(__file__).parents[2] / "docs" / "actions.md"
FRAMEWORK = {"__init__", "member_process", "operator_action", "reference", "registry"}


def test_every_module_declares_actions_and_all_are_registered() -> None:
    """A new action is one file: it is neither listed in the registry nor in the command line."""
    folder = Path(actions.__path__[0])
    modules = {path.stem for path in folder.glob("*.py")} - FRAMEWORK
    assert {kind.__module__.rpartition(".")[2] for kind in ACTIONS.values()} == modules
    for module in modules:
        for other in folder.glob("*.py"):
            if other.stem in FRAMEWORK:
                assert f"actions.{module} import" not in other.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ACTIONS.values(), ids=list(ACTIONS))
def test_a_declaration_is_complete(kind: type[OperatorAction]) -> None:
    declared = kind.declared
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", declared.name)
    assert declared.permission in PERMISSIONS[declared.kind]
    assert kind.__doc__
    for field in msgspec.structs.fields(kind):
        hint = get_type_hints(kind, include_extras=True)[field.name]
        assert any(getattr(each, "description", "") for each in get_args(hint)[1:]), (
            f"{field.name}: no description"
        )
    if declared.command:
        assert f"holdfast {declared.command}" in kind.__doc__, "the help has an example"
        assert declared.summary
    if issubclass(kind, OperatorQuery):
        assert kind.answer is not OperatorQuery.answer or kind.ask is not OperatorQuery.ask
        return
    if not issubclass(kind, ProcessAction):
        assert kind.apply is not OperatorAction.apply
    if not issubclass(kind, AnsweredAction | ProcessAction):
        assert kind.waits_for is not OperatorAction.waits_for
        assert kind.done_text is not OperatorAction.done_text


def test_names_and_commands_are_unique() -> None:
    commands = [kind.declared.command for kind in ACTIONS.values() if kind.declared.command]
    assert len(set(commands)) == len(commands)


def test_every_command_exists_with_its_options() -> None:
    known = all_commands(holdfast)
    for kind in ACTIONS.values():
        if kind.declared.command:
            command = known[kind.declared.command]
            names = {parameter.name for parameter in command.params}
            assert {"address", "as_json"} <= names
            assert ("timeout_s" in names) is not issubclass(kind, OperatorQuery)
            assert {field.name for field in msgspec.structs.fields(kind)} <= names
            assert ("yes" in names) is (kind.question is not OperatorAction.question)
            if kind.declared.target is Target.MEMBERS:
                assert isinstance(
                    next(one for one in command.params if one.name == "members"), click.Argument
                )


def test_the_reference_page_is_made_from_the_declarations(request: pytest.FixtureRequest) -> None:
    page = reference_page(list(ACTIONS.values()))
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "pytest tests/actions --rewrite writes it again"


EXAMPLES: dict[str, dict[str, Any]] = {
    "alter-zone": {"name": "z", "filter": ""},
    "baseline-add": {"members": ["four"]},
    "baseline-auto": {"adjust_ms": 1000},
    "baseline-remove": {"members": ["four"]},
    "configure": {"settings": {"limits.connections": "2000"}},
    "create-zone": {"name": "z", "replicas": 3, "scale_up_s": "never", "consistency": "ha"},
    "destroy-cp-object": {"object_kind": "lock", "name": "ledger", "group": "eu"},
    "drop-zone": {"name": "z"},
    "evict": {"members": ["a-uuid"]},
    "key-changes": {"prefix": "app/", "after": 7},
    "key-history": {"key": "app/flag"},
    "kill-client": {"client": 17},
    "put-key": {"key": "app/flag", "value": "on", "if_revision": 0},
    "read-key": {"key": "app/flag"},
    "rebuild-replica": {"zone": 1, "partition": 3},
    "remove-key": {"key": "app/flag"},
    "rename-zone": {"name": "z", "wanted": "y"},
    "reset-zone": {"name": "z", "partitions": [1, 3]},
    "roll-back-transaction": {"transaction": "3f2a"},
    "show-zone": {"name": "z"},
    "check-move": {"name": "m", "zone": "z"},
    "move-map": {"name": "m", "zone": "z"},
    "refill": {"partition": 3, "member": "a-uuid"},
    "set-map": {"name": "m", "settings": {"backups": "2"}},
    "reset-map": {"name": "m"},
    "state": {"state": "frozen"},
}


@pytest.mark.parametrize("name", ACTIONS)
def test_both_carriers_have_the_same_content(name: str) -> None:
    fields = EXAMPLES.get(name, {})
    action = action_of(name, fields)
    assert read_action(name, msgspec.msgpack.encode(action)) == action
    schema = described(type(action))["fields"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(msgspec.to_builtins(action), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**fields, "force": True}, schema)
    with pytest.raises(ProtocolError, match="unknown field `force`"):
        action_of(name, {**fields, "force": True})


@pytest.mark.parametrize("kind", ACTIONS.values(), ids=list(ACTIONS))
def test_answers_are_readable_as_json(kind: type[OperatorAction]) -> None:
    """A key or an id as bytes would be Base64 over HTTP."""
    if kind.result is not None:
        assert "contentEncoding" not in json.dumps(msgspec.json.schema(kind.result))


@pytest.mark.parametrize("name", ACTIONS)
def test_the_audit_line_has_the_name_and_the_fields(name: str) -> None:
    fields = EXAMPLES.get(name, {})
    line = action_of(name, fields).audit_line()
    assert line.split()[0] == name
    assert all(f"{field}=" in line for field in fields)


def test_declarations_load_no_code_of_a_member() -> None:
    """The command line must start quickly."""
    code = "import sys, holdfast.actions.registry; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    for module in (
        "holdfast.core.member",
        "holdfast.core.member_view",
        "holdfast.engine",
        "holdfast.runtime",
        "asyncio",
    ):
        assert module not in loaded


def test_the_list_of_commands_imports_no_declaration() -> None:
    tree = ast.parse((Path(__file__).parents[2] / "src/holdfast/cli/main.py").read_text(encoding="utf-8"))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [module for module in imported if module.startswith("holdfast.actions")]


def test_a_wrong_value_is_told_before_anything_is_sent() -> None:
    told = CliRunner().invoke(holdfast, ["cluster", "state", "asleep"])
    assert told.exit_code == 2
    assert "'asleep' is not one of 'active'" in told.stderr
