"""Hostile strangers at the doors of real members, for some seconds: `make fuzz` does it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from tests.runtime.certificates import Authority
from tests.sampled_cases import sampled

from holdfast.config.client_tls import ClientTls
from holdfast_lab.fuzz.fuzz import Fuzz, Plan
from holdfast_lab.fuzz.hostile import DOORS, HTTP, Facts, talk

FACTS = Facts("dev", 271, ("aa-01", "bb-02"), "secret")


@pytest.mark.parametrize(("secret", "secured"), sampled([(True, False), (False, False), (True, True)], 3))
def test_nothing_that_strangers_say_harms(tmp_path: Path, secret: bool, secured: bool) -> None:
    authority = Authority(tmp_path / "files", "ours")
    shown = authority.sign()
    tls = ClientTls(authority.file, shown.certificate, shown.key) if secured else None
    plan = Plan(messages=3000, seed=20, rest_s=0.2, secret=secret, tls=tls)
    verdict = Fuzz(plan, Console(quiet=True), tmp_path).run()
    assert not verdict.problems, "\n".join(verdict.problems)
    assert verdict.said >= 3000
    assert verdict.operations
    # It came deep enough to be refused.
    assert verdict.doors["client connections closed by this member"] > 10
    assert verdict.doors["member connections closed: protocol error"] > 10
    assert verdict.doors["malformed HTTP requests"] > 10


def test_a_talk_can_be_had_again() -> None:
    seen = set()
    for number in range(50):
        one, again = talk(7, number, FACTS), talk(7, number, FACTS)
        assert (one.door, one.pieces, one.ends) == (again.door, again.pieces, again.ends)
        if one.challenged is not None and again.challenged is not None:
            assert one.challenged(bytes(16), b"") == again.challenged(bytes(16), b"")
        seen.add(one.door)
    assert seen == {*DOORS, HTTP}
