"""The console where all doors speak TLS: the page, what it asks for, its live events and an order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.console.browser import Tab, chromium
from tests.runtime.certificates import Authority

from holdfast.config.client_tls import ClientTls
from holdfast_lab.fuzz.secured import config_of
from holdfast_lab.processes.local_cluster import LocalCluster

ROOT = ("root", "a long enough secret")
CONFIG = f"""
[http]
port = 0
[users.{ROOT[0]}]
passwords = ["{ROOT[1]}"]
roles = ["admin"]
"""


def test_a_page_over_tls_shows_all_members_hears_events_and_gives_orders(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    shown = authority.sign()
    tls = ClientTls(authority.file, shown.certificate, shown.key)
    with (
        chromium() as browser,
        LocalCluster(2, config_of(tls) + CONFIG, user=ROOT, tls=tls) as cluster,
    ):
        cluster.wait_safe(120)
        door = str(cluster.status(cluster.members[0]).http)
        strange = Tab(browser, "https")
        with pytest.raises(Exception, match="ERR_CERT_AUTHORITY_INVALID"):
            strange.open(door)
        strange.close()
        # Whom a browser trusts is its own; that it would not trust this one by itself was just seen.
        tab = Tab(browser, "https", ignore_https_errors=True)
        page = tab.open(door)
        tab.log_in(*ROOT)
        page.locator("main tbody tr").nth(1).wait_for()
        page.get_by_text("live", exact=True).wait_for()
        page.wait_for_timeout(2_500)
        assert page.get_by_text("silent:").count() == 0, "the other one was asked over TLS, too"
        page.get_by_label("State of the cluster").select_option("frozen")
        page.locator("#change-state").click()
        page.get_by_role("button", name="Make it frozen").click()
        page.get_by_text("The cluster is frozen", exact=True).wait_for()
        assert cluster.status().cluster_state == "frozen"
        assert (tab.wrong, tab.dialogs, tab.elsewhere) == ([], [], [])
        tab.close()
