"""The pictures of docs/console.md, made anew: `make screenshots`. A real cluster with data, which members join;
and the report of a real run of the demo (`--no-demo` leaves that out, `--report FILE` takes one that is there).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from tests.console.browser import PHONE, Tab, chromium

from holdfast.client.blocking import Client
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIG = "[maps.default]\nbackups = 1\n[http]\nport = 0\n"
MAPS = {"flights": 12_000, "orders": 6_400, "customers": 1_900, "carts": 740, "sessions": 320, "prices": 88}
WIDE = {"width": 1180, "height": 900}
BYTES_MAX = 150_000


def load(address: str) -> None:
    """Some maps of different sizes."""
    with Client(address) as client:
        for name, rows in MAPS.items():
            keys = [to_stored(f"{name}-{number}") for number in range(rows)]
            values = [to_stored({"number": number, "text": "x" * (number % 90)}) for number in range(rows)]
            client.put_columns(name, keys, values)


class Writing(threading.Thread):
    """Writes to one map, so that there are rates to see."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._over = threading.Event()

    def run(self) -> None:
        with Client(self._address) as client:
            number = 0
            while not self._over.wait(0.02):
                keys = [to_stored(f"carts-{(number + each) % 740}") for each in range(20)]
                client.put_columns("carts", keys, [to_stored({"number": number})] * 20)
                number += 20

    def end(self) -> None:
        """No more."""
        self._over.set()
        self.join(10)


def shoot(tab: Tab, name: str, **options: Any) -> None:
    """One picture."""
    path = DOCS / f"{name}.png"
    tab.page.mouse.move(0, 0)
    tab.page.screenshot(path=path, **options)
    # A page has few colours: a list of them makes a third of the bytes, and nobody sees a difference.
    Image.open(path).convert("RGB").quantize(200, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes")
    assert size <= BYTES_MAX, f"{path} is larger than {BYTES_MAX} bytes"


def console(browser: Browser) -> None:
    """That of the console."""
    with LocalCluster(3, CONFIG) as cluster:
        cluster.wait_safe(120)
        address = str(cluster.status(cluster.alive[0]).http)
        load(cluster.client_addresses()[0])
        writing = Writing(cluster.client_addresses()[0])
        writing.start()
        time.sleep(2)
        cluster.start_member()
        cluster.wait_settled(120)
        time.sleep(3)
        cluster.start_member()
        cluster.wait_settled(120)
        time.sleep(3)
        views = {"console-light": ("partitions", "light", WIDE), "console-dark": ("members", "dark", WIDE)}
        views["console-phone"] = ("maps", "light", PHONE)
        for name, (view, scheme, size) in views.items():
            tab = Tab(browser, viewport=size, color_scheme=scheme)
            tab.open(address, view)
            tab.page.locator("main tbody tr, main canvas").first.wait_for()
            tab.page.wait_for_timeout(4500)
            shoot(tab, name)
            tab.close()
        writing.end()


def report(browser: Browser, page: Path) -> None:
    """Those of the report."""
    for name, scheme, size in (
        ("report-light", "light", WIDE),
        ("report-dark", "dark", WIDE),
        ("report-phone", "light", PHONE),
    ):
        tab = Tab(browser, viewport=size, color_scheme=scheme)
        tab.page.goto(page.resolve().as_uri())
        tab.page.wait_for_timeout(500)
        if size is PHONE:
            tab.page.locator("#pictures").evaluate("(one) => one.scrollIntoView()")
        shoot(tab, name, full_page=size is not PHONE)
        tab.close()


def main() -> None:
    """All of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--no-demo", action="store_true")
    chosen = parser.parse_args()
    with chromium() as browser:
        console(browser)
        if chosen.report is not None:
            report(browser, chosen.report)
    if chosen.report is None and not chosen.no_demo:
        with tempfile.TemporaryDirectory(prefix="holdfast-pictures-") as folder:
            holdfast = Path(sys.executable).with_name("holdfast")
            subprocess.run([holdfast, "demo", "--rows", "20000", "--out", "."], check=True, cwd=folder)
            with chromium() as browser:
                report(browser, Path(folder) / "report.html")


if __name__ == "__main__":
    main()
