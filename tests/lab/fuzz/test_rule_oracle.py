"""The judge of what a user with few rights is answered, and what he judges; `make fuzz-users` is longer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.runtime.certificates import Authority

from holdfast.actions.shut_down import ShutDown
from holdfast.client.action_messages import request_of
from holdfast.config import load
from holdfast.config.client_tls import ClientTls
from holdfast.config.users import users_of
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.errors import HoldfastError
from holdfast.server.access import MAP_SERVICE, call_rejection
from holdfast.server.hazelcast.hazelcast_session import MESSAGES
from holdfast.server.hazelcast.names import NAMES, name_of
from holdfast.server.rights import Rights
from holdfast.wire import own
from holdfast.wire.hazelcast import hazelcast_frames as hz
from holdfast.wire.hazelcast.layouts import Call
from holdfast_lab.fuzz.hostile import Facts
from holdfast_lab.fuzz.rule_oracle import (
    BOX,
    CONFIG,
    OWN,
    RESERVED,
    SHELF,
    VAULT,
    Guest,
    answer_problem,
    fuzz_rules,
    response_problem,
)

NUMBERS = {name: kind for kind, name in NAMES.items()}
DONE = own.Executed(1, Outcome(Status.OK))
DENIED = own.Fault(1, own.FaultKind.DENIED, "user 'guest' may not do this: ...")
CALLS = [
    ("Map.get", "vault", None, "let through"),
    ("Map.get", "vault", 64, ""),
    ("Map.get", "shelf", None, ""),
    ("Map.get", "shelf", 64, "refused"),
    ("Map.set", "shelf", None, "let through"),
    ("Map.addEntryListener", "shelf", None, "let through"),
    ("TransactionalMap.getForUpdate", "shelf", None, "let through"),
    ("Map.set", "box", None, ""),
    ("Map.set", "box", 64, "refused"),
    ("Map.put", "box", None, "let through"),
    ("Map.size", "box", None, "let through"),
    ("Map.clear", "own", None, ""),
    ("Map.clear", "own", 64, "refused"),
    ("Map.clear", "own", 27, ""),
    ("Map.get", "__transactions", None, "let through"),
    ("Map.removeEntryListener", "vault", None, ""),
    ("Client.addMigrationListener", "", None, "let through"),
]


@pytest.mark.parametrize(("name", "of", "code", "wrong"), CALLS)
def test_calls_are_judged(name: str, of: str, code: int | None, wrong: str) -> None:
    assert response_problem(Call(NUMBERS[name], 1, -1, of), code) == wrong


QUESTIONS: list[tuple[own.Question, own.Answer, str]] = [
    (own.Execute(1, Request(Op.GET, "vault", [0])), DONE, "let through"),
    (own.Execute(1, Request(Op.GET, "vault", [0])), DENIED, ""),
    (own.Execute(1, Request(Op.GET, "shelf", [0])), DENIED, "refused"),
    (own.Execute(1, Request(Op.SET, "shelf", [0])), DONE, "let through"),
    (own.Execute(1, Request(Op.SET, "box", [0])), DENIED, "refused"),
    (own.Execute(1, Request(Op.PUT, "box", [0])), DONE, "let through"),
    (own.Execute(1, Request(Op.CALL, "own", [0])), DONE, "let through"),
    (request_of(1, ShutDown(), 1), own.Acted(1, own.Fate.DONE, ""), "let through"),
    (request_of(1, ShutDown(), 1), DENIED, ""),
    (own.Cut(1, b"", ["own"], [0], 1), own.CutHeld(1, 0, []), "let through"),
]


@pytest.mark.parametrize(("question", "answer", "wrong"), QUESTIONS, ids=lambda value: str(value)[:50])
def test_questions_are_judged(question: own.Question, answer: own.Answer, wrong: str) -> None:
    assert answer_problem(question, answer) == wrong


@pytest.mark.rule("server/P-1")
@pytest.mark.parametrize("kind", MESSAGES, ids=name_of)
def test_the_table_and_the_judge_are_of_one_mind(kind: int) -> None:
    """They share nothing, so an entry that permits too much or too little is found."""
    settings = load(CONFIG)
    guest = Rights(users_of(settings)["guest"])
    carried = MESSAGES[kind].layout.declaration.replace("|", " ").split()
    for of in (VAULT, SHELF, BOX, OWN, *RESERVED):
        call = Call(kind, 1, -1, service=MAP_SERVICE, include_value="include_value" in carried)
        call.name = of if "name" in carried else ""
        call.names = [of] if "names" in carried else []
        call.proxies = [(of, MAP_SERVICE)] if "proxies" in carried else []
        why = call_rejection(guest, call)
        assert response_problem(call, 64 if why else None) == "", (
            f"{name_of(kind)} of {of}: {why or 'permitted'}"
        )


def test_each_request_that_is_said_can_be_understood() -> None:
    """One that is always broken ends its connection, and the rules are never asked."""
    guest = Guest(random.Random(1), Facts("ruled", 271, ()), rough=False)
    broken = []
    for kind in MESSAGES:
        said = [guest.numbered(number, kind) for number in range(60)]
        understood = [
            data for data in said if hz.REQUEST.unpack_from(data)[2] == kind and _decodes(kind, data)
        ]
        if len(understood) < 20:
            broken.append(name_of(kind))
    assert broken == []


def _decodes(kind: int, data: bytes) -> bool:
    try:
        MESSAGES[kind].layout.decode(data, 0, len(data))
    except HoldfastError:
        return False
    return True


@pytest.mark.parametrize("secured", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["TLS", "plain"])
def test_nothing_is_let_through_that_no_rule_permits(tmp_path: Path, *, secured: bool) -> None:
    authority = Authority(tmp_path / "files", "ours")
    shown = authority.sign()
    tls = ClientTls(authority.file, shown.certificate, shown.key) if secured else None
    found = fuzz_rules(2500, 3, tmp_path, tls=tls)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.said >= 2500
    assert found.refused > 1000
    assert found.answered - found.refused > 300
