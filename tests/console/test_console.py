"""The console in a real browser, on three real members with users: what it shows, what it orders, and for whom."""

from __future__ import annotations

import http.client
import json
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.console.browser import PHONE, Tab, chromium

from holdfast.actions.operator_action import OperatorQuery
from holdfast.actions.registry import ACTIONS
from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember

ROOT, LOOKER = ("root", "a long enough secret"), ("lena", "another long secret")
CONFIG = f"""
[maps.default]
backups = 1
[partitions]
count = 97
[http]
port = 0
[users.{ROOT[0]}]
passwords = ["{ROOT[1]}"]
roles = ["admin"]
[users.{LOOKER[0]}]
passwords = ["{LOOKER[1]}"]
roles = ["looker"]
[roles.looker]
rules = ["cluster * status watch", "map open* read"]
"""
EVIL = "<img src=x onerror=alert(1)>"
VIEWS = ("members", "cluster", "partitions", "migrations", "maps", "slow", "events", "entry")


def put(address: str, name: str, key: object, value: object) -> None:
    with Client(address, username=ROOT[0], password=ROOT[1]) as client:
        stored = to_stored(key)
        partition = partition_of(stored, 0, client.partition_count)
        client.execute(Request(Op.SET, name, [partition], stored, to_stored(value)))


@dataclass
class Running:
    """What all tests of this module share."""

    cluster: LocalCluster
    browser: Any

    def door(self, member: ManagedMember) -> str:
        """HOST:PORT of its door for HTTP."""
        return str(self.cluster.status(member).http)

    @property
    def address(self) -> str:
        """That of the oldest member."""
        return self.door(self.cluster.alive[0])


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with chromium() as browser, LocalCluster(3, CONFIG, user=ROOT) as cluster:
        cluster.wait_safe(120)
        address = cluster.client_addresses()[0]
        for number in range(60):
            put(address, "open-orders", number, {"order": number})
        put(address, EVIL, EVIL, EVIL)
        put(address, "open-texts", "greeting", "hello")
        yield Running(cluster, browser)


@pytest.fixture
def tab(running: Running) -> Iterator[Callable[..., Tab]]:
    """Makes pages that are logged in, and sees that nothing went wrong in any."""
    tabs: list[Tab] = []

    def made(user: tuple[str, str] = ROOT, view: str = "", address: str = "", **options: Any) -> Tab:
        one = Tab(running.browser, **options)
        tabs.append(one)
        one.open(address or running.address, view)
        one.log_in(*user)
        return one

    yield made
    for one in tabs:
        wrong = one.wrong, one.dialogs, one.elsewhere
        one.close()
        assert wrong == ([], [], [])


def ask(
    address: str, path: str, method: str = "GET", body: str = "", **headers: str
) -> tuple[int, str, dict[str, str]]:
    made = http.client.HTTPConnection(address, timeout=120)
    try:
        made.request(
            method, path, body or None, {name.replace("_", "-"): said for name, said in headers.items()}
        )
        answer = made.getresponse()
        return (
            answer.status,
            answer.read().decode(),
            {name.lower(): said for name, said in answer.getheaders()},
        )
    finally:
        made.close()


def basic(user: tuple[str, str]) -> str:
    return "Basic " + b64encode(":".join(user).encode()).decode()


def with_slow_operations(route: Any) -> None:
    """As members tell them that keep a list."""
    told = route.fetch().json()
    one = {
        "ended_ms": 1_700_000_000_000, "took_ms": 612, "kind": "writes", "operations": 12,
        "places": {"flights": [3, 17]}, "waited_for": "backups to acknowledge", "members": ["two"],
    }  # fmt: skip
    kept = {"limit_ms": 100, "count": 1, "recent": [one], "running": []}
    told["members"][0]["answer"]["slow_operations"] = kept
    route.fulfill(json=told)


def test_each_view_has_content(tab: Callable[..., Tab]) -> None:
    page = tab().page
    page.locator("main tbody tr").nth(2).wait_for()
    assert page.locator("main tbody tr").count() == 3
    assert "members" in page.locator(".cards").inner_text()
    page.get_by_text("live", exact=True).wait_for()
    rates = page.locator("td[data-title='Operations a second']")
    rates.filter(has_text=re.compile(r"\d")).nth(2).wait_for()
    clients = page.locator("td[data-title='Clients']").all_inner_texts()
    assert all(int(one) >= 0 for one in clients), clients
    page.get_by_role("link", name="Cluster").click()
    page.get_by_text("Every member owns data as soon as it joins.").wait_for()
    for words in (
        "There are no zones.",
        "This cluster has no metastore.",
        "No export and no backup is under way.",
    ):
        assert page.get_by_text(words).count() == 1, words
    page.get_by_role("link", name="Partitions").click()
    page.locator("canvas").nth(1).wait_for()
    squares = page.locator("canvas").first
    squares.hover(position={"x": 5, "y": 5})
    assert "owner: m" in page.locator(".tip").first.inner_text()
    squares.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "partition 1\n" in page.locator(".tip").first.inner_text()
    page.get_by_role("link", name="Migrations").click()
    page.get_by_text("No migration is under way.").wait_for()
    page.get_by_role("link", name="Maps").click()
    page.get_by_role("cell", name="open-orders").wait_for()
    assert page.locator("tr", has_text="open-orders").locator(".number").first.inner_text().strip() == "60"
    page.get_by_role("link", name="Slow operations").click()
    page.get_by_text("since the members started that took more than").wait_for()
    page.route("**/v1/queries/status*", with_slow_operations)
    page.get_by_text("backups to acknowledge").wait_for()
    page.unroute_all(behavior="wait")
    page.get_by_role("link", name="Events").click()
    page.get_by_label("Which events").select_option("notable")
    page.get_by_text(re.compile("m3 (has joined|is here)")).first.wait_for()
    page.get_by_role("link", name="Entry").click()
    page.get_by_label("Map").fill("open-texts")
    page.get_by_label("Key", exact=True).fill("greeting")
    page.get_by_role("button", name="Look it up").click()
    assert page.locator("pre").inner_text() == "hello"


def test_what_clients_have_named_is_text(tab: Callable[..., Tab]) -> None:
    page = tab(view="maps").page
    page.get_by_role("cell", name=EVIL).wait_for()
    page.get_by_role("link", name="Entry").click()
    page.get_by_label("Map").fill(EVIL)
    page.get_by_label("Key", exact=True).fill(EVIL)
    page.get_by_role("button", name="Look it up").click()
    assert page.locator("pre").inner_text() == EVIL

    def renamed(route: Any) -> None:
        told = route.fetch().json()
        for one in told["members"]:
            one["name"] = EVIL
            for row in one["answer"]["members"]:
                row["name"] = EVIL
        route.fulfill(json=told)

    page.route("**/v1/queries/status*", renamed)
    page.get_by_role("link", name="Members").click()
    page.get_by_role("button", name=f"Drain {EVIL}").first.click()
    assert page.locator("dialog h2").inner_text() == f"Drain {EVIL}"
    page.keyboard.press("Escape")
    page.unroute_all(behavior="wait")
    assert page.locator("img").count() == 0


def test_who_may_only_look_sees_no_buttons_and_is_refused_by_hand(
    tab: Callable[..., Tab], running: Running
) -> None:
    page = tab(LOOKER).page
    page.locator("main tbody tr").nth(2).wait_for()
    assert [
        one for one in page.locator("main button").all_inner_texts() if "Drain" in one or "Verify" in one
    ] == []
    assert page.locator("#change-state").count() == 0
    page.get_by_role("link", name="Entry").click()
    page.get_by_label("Map").fill(EVIL)
    page.get_by_role("button", name="Look it up").click()
    page.get_by_text("which no rule permits").wait_for()
    for path, content in (
        ("/v1/actions/drain", {}),
        (f"/v1/actions/drain?member={running.cluster.alive[1].uuid}", {}),
        ("/v1/actions/state", {"state": "passive"}),
        ("/console/api/verify", {}),
        ("/console/api/entry", {"map": EVIL, "key": EVIL}),
    ):
        status, why, _ = ask(
            running.address, path, "POST", json.dumps(content),
            content_type="application/json", authorization=basic(LOOKER),
        )  # fmt: skip
        assert (status, "no rule permits" in why) == (403, True), path
    assert len(running.cluster.alive) == 3


@pytest.mark.rule("server/C-1")
def test_a_page_of_somebody_else_orders_nothing(running: Running) -> None:
    body = json.dumps({"state": "passive"})
    own = f"http://{running.address}"
    for headers in (
        {"content_type": "text/plain"},
        {"content_type": "application/json", "origin": "http://evil.example"},
        {"content_type": "application/json", "origin": own, "sec_fetch_site": "cross-site"},
    ):
        status, _, _ = ask(
            running.address, "/v1/actions/state", "POST", body, authorization=basic(ROOT), **headers
        )
        assert status == 403
    assert ask(running.address, "/v1/actions/state", "POST", body, content_type="application/json")[0] == 401
    assert running.cluster.status().cluster_state == "active"


def test_files_are_kept_and_asked_for_whether_they_are_new(running: Running) -> None:
    status, _, headers = ask(running.address, "/console/app.js")
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    status, body, _ = ask(running.address, "/console/app.js", if_none_match=headers["etag"])
    assert (status, body) == (304, "")
    assert ask(running.address, "/console/../console_files.py")[0] == 404
    assert ask(running.address, "/v1/queries/status?member=all")[0] == 401


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(tab: Callable[..., Tab], scheme: str) -> None:
    one = tab(viewport=PHONE, color_scheme=scheme)
    page = one.page
    for view in VIEWS:
        page.evaluate("(view) => { location.hash = view }", view)
        page.locator(f"nav a[href='#{view}'][aria-current]").wait_for()
        page.wait_for_timeout(200)
        assert one.overflow() == [], view
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(18, 23, 29)") == (scheme == "dark")
    page.locator("#theme").click()
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 29)"
    assert page.evaluate("localStorage.getItem('holdfast-theme')") == "dark"


def test_the_cluster_is_frozen_safe_and_verified(tab: Callable[..., Tab], running: Running) -> None:
    page = tab().page
    page.get_by_role("button", name="Is it safe?").click()
    page.get_by_text("Safe: as all 3 members see it").wait_for()
    page.get_by_role("button", name="Verify copies").click()
    page.get_by_role("button", name="Verify", exact=True).click()
    page.get_by_text("All copies are the same").wait_for()
    for state in ("frozen", "active"):
        page.get_by_label("State of the cluster").select_option(state)
        page.get_by_role("button", name="Change").click()
        page.get_by_role("button", name=f"Make it {state}").click()
        page.get_by_text(f"The cluster is {state}", exact=True).wait_for()
        assert running.cluster.status().cluster_state == state


def test_every_action_is_a_command_with_a_form(tab: Callable[..., Tab], running: Running) -> None:
    page = tab(view="commands").page
    chosen = page.get_by_label("Command", exact=True)
    chosen.locator("option").nth(3).wait_for(state="attached")
    names = {name for name, kind in ACTIONS.items() if not issubclass(kind, OperatorQuery)}
    assert set(chosen.locator("option").all_inner_texts()) == names

    def carry_out(action: str, /, **fields: str) -> None:
        chosen.select_option(action)
        for label, value in fields.items():
            page.get_by_label(label, exact=True).fill(value)
        page.locator("form button.main").click()
        page.get_by_role("button", name="Carry it out").click()

    carry_out("set-map", name="open-orders", settings="ttl=2h")
    page.get_by_text("set-map: open-orders has ttl=2h").wait_for(timeout=30_000)
    rows = running.cluster.status().map_settings
    assert [row.value for row in rows if (row.map, row.setting) == ("open-orders", "ttl_ms")] == [7_200_000]
    carry_out("reset-map", name="open-orders")
    page.get_by_text("reset-map: open-orders has the settings of the configuration").wait_for(timeout=30_000)
    carry_out("configure", settings="limits.connections=1999")
    page.get_by_text("configure at m3: has limits.connections=1999").wait_for()
    carry_out("kill-client", client="999999")
    page.get_by_text(re.compile("kill-client at m1: rejected: ")).wait_for()
    chosen.select_option("accept-loss")
    page.locator("form button.main").click()
    assert page.get_by_role("button", name="Carry it out").is_disabled(), "its name is to be typed"
    page.keyboard.press("Escape")


@pytest.mark.parametrize("answered", [True, False])
def test_an_unknown_outcome_is_not_called_rejected(tab: Callable[..., Tab], answered: bool) -> None:
    page = tab().page

    def lose(route: Any) -> None:
        if answered:
            route.fulfill(status=504, json={"result": "unknown", "message": "no answer"})
        else:
            route.abort()

    page.route("**/v1/actions/state*", lose)
    page.get_by_label("State of the cluster").select_option("frozen")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("button", name="Make it frozen").click()
    page.get_by_text("Unknown whether it was done; look before you repeat it").wait_for()
    if answered:
        page.get_by_text(": no answer").wait_for()


def test_a_member_is_drained_by_keyboard_alone(tab: Callable[..., Tab], running: Running) -> None:
    gone = running.cluster.alive[-1]
    page = tab().page
    page.get_by_role("button", name=f"Drain {gone.name}").wait_for()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == f"Drain {gone.name}":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.evaluate("window.marked = document.activeElement")
    page.keyboard.press("Enter")
    page.locator("dialog[open]").wait_for()
    page.evaluate("dispatchEvent(new Event('holdfast-ask'))")
    deadline = time.monotonic() + 120
    while page.evaluate("window.marked.isConnected") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not page.evaluate("window.marked.isConnected"), "the table behind the question is drawn anew"
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")  # no longer open is said before it has ended
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == f"Drain {gone.name}", (
        "the table was drawn anew behind the question"
    )
    page.keyboard.press("Enter")
    page.locator("dialog[open]").wait_for()
    page.keyboard.type("m99")
    page.keyboard.press("Enter")
    assert page.locator("dialog[open]").count() == 1, "another name is no confirmation"
    for _ in "m99":
        page.keyboard.press("Backspace")
    page.keyboard.type(gone.name)
    page.keyboard.press("Enter")
    page.get_by_text(f"{gone.name} has left").first.wait_for(timeout=30_000)
    assert gone.process.wait(120) == 0
    page.get_by_role("link", name="Migrations").click()
    page.locator("main tbody tr").nth(20).wait_for()
    page.get_by_role("link", name="Events").click()
    page.get_by_label("Which events").select_option("notable")
    page.get_by_text(f"{gone.name} has left").first.wait_for()
    deadline = time.monotonic() + 120
    while len(running.cluster.status().members) != 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(running.cluster.status().members) == 2


def test_the_page_of_a_member_that_is_drained_ends_with_it(tab: Callable[..., Tab], running: Running) -> None:
    gone = running.cluster.alive[-1]
    page = tab(address=running.door(gone)).page
    page.get_by_role("button", name=f"Drain {gone.name}").click()
    page.get_by_text("This page came from this very member").wait_for()
    page.get_by_label("to go on").fill(gone.name)
    page.get_by_role("button", name=f"Drain {gone.name}").last.click()
    page.get_by_text(re.compile(f"{gone.name} has (left|gone)")).first.wait_for(timeout=30_000)
    assert gone.process.wait(120) == 0
    page.get_by_text("not connected").wait_for()
