"""Who comes in, with a clock that the test turns and checks of passwords that take as long as it wants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.config import load
from holdfast.config.verifiers import COST, PasswordVerifier, token_verifier
from holdfast.core.model.ids import SECOND
from holdfast.server.logins import FORGIVEN_NS, FREE, FREE_OF_USER, KEPT, Login, LoginAnswer, Logins, net_of

TOKEN = b"a token of more than 24 characters"
ADA, EVE = "10.0.0.1", "10.0.0.2"
VERIFIER = str(PasswordVerifier(*COST, salt=bytes(16), hashed=bytes(32)))
"""No password is compared here: a `Proof` stands for that."""
CONFIG = f"""
[users.ada]
passwords = ["old", "new"]

[users.kept]
verifiers = ["{VERIFIER}", "{token_verifier(TOKEN)}"]
"""


class Proof:
    """A check that somebody waits for."""

    def __init__(self, password: str, needed: Callable[[], bool], done: Callable[[bool], None]) -> None:
        self.password = password
        self.needed = needed
        self.done = done
        self.cost: list[tuple[int, int, int]] = []
        """Of each verifier that is compared."""


class Stage:
    """The logins of one member, its clock and its thread."""

    def __init__(self, config: str = CONFIG) -> None:
        self.now_ns = 0
        self.timers: list[tuple[int, Callable[[], object]]] = []
        self.proofs: list[Proof] = []
        self.logins = Logins(load(config), lambda: self.now_ns, lambda: self, lambda: self, b"seed")

    def call_later(self, delay: float, deed: Callable[[], object], /) -> None:
        self.timers.append((self.now_ns + round(delay * SECOND), deed))

    def prove(
        self,
        verifiers: tuple[PasswordVerifier, ...],
        password: str,
        address: str,
        needed: Callable[[], bool],
        done: Callable[[bool], None],
    ) -> None:
        self.proofs.append(Proof(password, needed, done))
        self.proofs[-1].cost = [(one.n, one.r, one.p) for one in verifiers]

    def make_proofs(self) -> int:
        """Check what waits; answers how many had to be."""
        proofs, self.proofs = self.proofs, []
        needed = 0
        for proof in proofs:
            if proof.needed():
                needed += 1
                proof.done(proof.password == "kept as a verifier")
        return needed

    def after(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)
        due = [deed for when, deed in self.timers if when <= self.now_ns]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_ns]
        for deed in due:
            deed()

    def ask(
        self, name: str | None, password: str | None, address: str = ADA, token: bytes | None = None
    ) -> list[LoginAnswer]:
        """Come in; the list has the answer when there is one."""
        answers: list[LoginAnswer] = []
        self.logins.ask(Login(name, password, token, address), lambda: True, answers.append)
        return answers


def came(answers: list[LoginAnswer]) -> str | None:
    """As whom; None: not at all."""
    (answer,) = answers
    return answer.rights.user if answer.rights is not None else None


def test_either_of_two_passwords_opens_the_door() -> None:
    stage = Stage()
    assert came(stage.ask("ada", "old")) == came(stage.ask("ada", "new")) == "ada"
    for name, password in (
        ("ada", "older"),
        ("ada", ""),
        ("ada", None),
        (None, "old"),
        ("", ""),
        (None, None),
    ):
        answers = stage.ask(name, password)
        stage.make_proofs()
        stage.after(10)
        stage.make_proofs()
        assert came(answers) is None, (name, password)


def test_a_token_needs_no_name() -> None:
    stage = Stage()
    assert came(stage.ask(None, None, token=TOKEN)) == "kept"
    assert came(stage.ask("ada", "old", token=b"another")) is None


def test_without_users_and_passwords_everybody_comes_in() -> None:
    (answer,) = Stage("").ask(None, None)
    assert answer.rights is not None
    assert answer.rights.everything


def test_the_one_user_of_before_may_do_everything() -> None:
    stage = Stage("[security]\nusername = 'u'\npassword = 'p'\ntoken = 't'")
    for answers in (stage.ask("u", "p"), stage.ask(None, None, token=b"t")):
        rights = answers[0].rights
        assert rights is not None
        assert rights.everything
    for wrong in (
        stage.ask("u", "q"),
        stage.ask("v", "p"),
        stage.ask("", ""),
        stage.ask(None, None, token=b""),
    ):
        assert came(wrong) is None
    only_token = Stage("[security]\ntoken = 't'")
    assert came(only_token.ask("token", "")) is None
    assert came(only_token.ask("token", "t")) is None


@pytest.mark.rule("server/L-3")
def test_a_user_that_there_is_not_is_looked_for_as_long_as_one_that_there_is() -> None:
    stage = Stage()
    for name in ("kept", "nobody", "ada"):
        answers = stage.ask(name, "wrong")
        assert not answers
        assert stage.make_proofs() == 1
        assert came(answers) is None


@pytest.mark.rule("server/L-3")
def test_a_user_with_two_verifiers_is_looked_for_as_long_as_any_other() -> None:
    """While one is rolled to the next: else the time tells which names there are."""
    second = VERIFIER.replace(":16384:8:5:", ":8192:8:5:")
    stage = Stage(CONFIG + f"[users.rolling]\nverifiers = ['{VERIFIER}', '{second}']\n")
    for name in ("rolling", "kept", "ada", "nobody"):
        assert not stage.ask(name, "wrong")
        assert stage.proofs[-1].cost == [(16384, 8, 5), (8192, 8, 5)], name
        stage.make_proofs()
    for name in ("ada", "nobody"):
        answers = stage.ask(name, "kept as a verifier", EVE)
        stage.make_proofs()
        assert came(answers) is None, "what is checked besides opens nothing"


@pytest.mark.rule("server/L-4")
def test_a_password_is_proved_once_and_known_then() -> None:
    stage = Stage()
    waiting = [stage.ask("kept", "kept as a verifier") for _ in range(50)]
    assert not any(waiting)
    assert stage.make_proofs() == 1, "who waits behind it is answered with it"
    assert {came(answers) for answers in waiting} == {"kept"}
    assert came(stage.ask("kept", "kept as a verifier")) == "kept"
    assert not stage.proofs


def test_what_nobody_waits_for_is_not_proved() -> None:
    stage = Stage()
    here = True
    answers: list[LoginAnswer] = []
    stage.logins.ask(Login("kept", "x", None, ADA), lambda: here, answers.append)
    here = False
    assert stage.make_proofs() == 0
    assert not answers


@pytest.mark.rule("server/L-1")
def test_who_guesses_waits_longer_and_longer_and_one_at_a_time() -> None:
    stage = Stage("[users.ada]\npasswords = ['right']")
    for _ in range(FREE):
        assert came(stage.ask("ada", "wrong")) is None
    first, second = stage.ask("ada", "wrong"), stage.ask("ada", "right")
    assert not first
    stage.after(0.1)
    assert came(first) is None
    assert not second, "it comes after the one before"
    stage.after(0.2)
    assert came(second) == "ada"
    waits = []
    for _ in range(6):
        answers = stage.ask("ada", "wrong")
        began_ns = stage.now_ns
        while not answers:
            stage.after(0.01)
        waits.append(stage.now_ns - began_ns)
    assert waits == sorted(waits)
    assert max(waits) < 2 * SECOND
    assert waits[-1] > SECOND
    assert came(stage.ask("ada", "right", EVE)) == "ada", "another address does not wait"


@pytest.mark.rule("server/L-1")
def test_what_would_wait_for_too_long_is_told_to_come_again() -> None:
    stage = Stage("[users.ada]\npasswords = ['right']")
    for _ in range(FREE):
        stage.ask("ada", "wrong")
    asked = [stage.ask("ada", "right") for _ in range(200)]
    refused = [answers[0] for answers in asked if answers]
    assert len(refused) > 150
    assert all(answer.rights is None and answer.again for answer in refused)
    assert len(stage.timers) < 50


def test_failures_are_forgiven() -> None:
    stage = Stage("[users.ada]\npasswords = ['right']")
    for _ in range(FREE):
        stage.ask("ada", "wrong")
    stage.after((FORGIVEN_NS + 1) / SECOND)
    assert came(stage.ask("ada", "right")) == "ada"


@pytest.mark.rule("server/L-2")
def test_a_name_that_is_guessed_from_everywhere_is_looked_at_a_moment_later() -> None:
    stage = Stage("[users.ada]\npasswords = ['right']")
    for number in range(FREE_OF_USER):
        assert came(stage.ask("ada", "wrong", f"10.1.0.{number}")) is None
    answers = stage.ask("ada", "right", EVE)
    assert not answers
    stage.after(0.5)
    assert came(answers) == "ada"


def test_what_is_known_of_those_who_guess_has_a_bound() -> None:
    stage = Stage("[users.ada]\npasswords = ['right']")
    for number in range(3 * KEPT):
        stage.ask(f"name {number}", "wrong", f"10.{number // 256}.{number % 256}.1")
    logins = stage.logins
    assert len(logins._by_address._kept) == len(logins._by_name._kept) == KEPT
    for _ in range(2000):
        stage.ask("ada", "wrong", EVE)
    assert len(logins._free_at_ns) <= KEPT


def test_an_ipv6_address_is_all_that_its_host_has() -> None:
    assert net_of("2001:db8:1:2:3::4") == net_of("2001:db8:1:2::9") != net_of("2001:db8:1:3::9")
    assert net_of("10.0.0.1") == "10.0.0.1"
    assert net_of("::ffff:10.0.0.1") != net_of("::ffff:10.0.0.2")
    assert net_of("an unknown address") == "an unknown address"
