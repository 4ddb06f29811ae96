"""Descriptions of actions for programs and people: JSON schemas, and the reference page (`docs/actions.md`)."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

import msgspec

from holdfast.actions.operator_action import OperatorAction, OperatorQuery


def help_of(kind: type[OperatorAction]) -> str:
    r"""The docstring, without its indentation. A line with `\b` begins lines that must not be folded."""
    return inspect.cleandoc(kind.__doc__ or "")


def field_schemas(kind: type[OperatorAction]) -> dict[str, Any]:
    """The JSON schemas of the fields, by name."""
    schema = msgspec.json.schema(kind)
    found: dict[str, Any] = schema["$defs"][kind.__name__]["properties"]
    return {name: _inlined(field, schema["$defs"]) for name, field in found.items()}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema without references to the definitions of other types."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        named = definitions[schema["$ref"].rpartition("/")[2]]
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {key: value for key, value in {**named, **rest}.items() if key != "title"}
    return {key: _inlined(value, definitions) for key, value in schema.items()}


def described(kind: type[OperatorAction]) -> dict[str, Any]:
    """An action for programs, with the schema of the body of its HTTP request."""
    declared = kind.declared
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return {
        "name": declared.name,
        "help": help_of(kind).partition("\n\n")[0].replace("\n", " "),
        "command": f"holdfast {declared.command}" if declared.command else "",
        "permission": f"{declared.kind} * {declared.permission}",
        "sent_to": declared.target.value,
        "query": issubclass(kind, OperatorQuery),
        "asks": kind.question is not OperatorAction.question,
        "timeout_ms": round(1000 * declared.timeout_s),
        "fields": {
            "type": "object",
            "properties": field_schemas(kind),
            "required": required,
            "additionalProperties": False,
        },
    }


def reference_page(kinds: Collection[type[OperatorAction]]) -> str:
    """`docs/actions.md`."""
    lines = [
        "# Actions of operators",
        "",
        "An action is one thing that an operator does, such as the drain of a member, or asks, such as its status.",
        "It has one name and the same fields everywhere: as a command, over HTTP",
        "(`POST /v1/actions/NAME` with the fields as JSON; `?timeout_ms=N` says how long to wait, `?member=UUID`",
        "sends it to another member), in Holdfast's own protocol, in the audit log and in traces. `GET /v1/actions`",
        'lists them with JSON schemas. The response is `{"result": "done", "message": "…"}`: `done` (200), `accepted`',
        "(202: not finished in time, and the cluster continues with it), `rejected` (409: it has no effect) or",
        "`unknown` (504: it may or may not have taken effect). Some actions have an answer, too: `value`.",
        "A query changes nothing: `GET /v1/queries/NAME`, with its fields in the query string.",
        "",
        "This page is made from `src/holdfast/actions`: `pytest tests/actions --rewrite`.",
        "",
        "| action | command | sent to | permission | timeout | after the timeout |",
        "|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        declared, name = kind.declared, kind.declared.name
        after = "withdrawn" if declared.withdrawn else "unknown" if declared.sent_once else "continues"
        after = "query" if issubclass(kind, OperatorQuery) else after
        command = f"`holdfast {declared.command}`" if declared.command else ""
        permission = f"`{declared.kind} * {declared.permission}`"
        cells = [
            f"[`{name}`](#{name})",
            command,
            declared.target.value,
            permission,
            f"{declared.timeout_s:g} s",
            after,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for kind in kinds:
        lines += ["", f"## {kind.declared.name}", "", _prose(kind)]
        if fields := field_schemas(kind):
            lines += ["", "| field | type | meaning |", "|---|---|---|"]
            required = {field.name for field in msgspec.structs.fields(kind) if field.required}
            for field, schema in fields.items():
                must = ", required" if field in required else ""
                lines.append(f"| `{field}` | {_type(schema)}{must} | {schema.get('description', '')} |")
    return "\n".join(lines) + "\n"


def _prose(kind: type[OperatorAction]) -> str:
    """The help as Markdown: blocks of lines that are not folded become code."""
    blocks = help_of(kind).split("\n\n")
    return "\n\n".join(
        "\n".join(["```text", inspect.cleandoc(block.removeprefix("\\b\n")), "```"])
        if block.startswith("\\b")
        else block
        for block in blocks
    )


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}s"
    return str(schema.get("type", "any"))
