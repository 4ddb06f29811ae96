"""The report of the demo in a real browser: it is drawn, says what is under the pointer, and fits."""

from __future__ import annotations

from pathlib import Path

from tests.console.browser import PHONE, Tab, chromium

from holdfast_lab.demo import report
from holdfast_lab.processes.hazelcast_writer import Progress
from holdfast_lab.processes.ownership import Event, Snapshot, Timeline

EVIL = "</script><script>alert(1)</script>"


def findings() -> report.Findings:
    """Two members; the one with the strange name dies in the middle."""
    line = Timeline(40, names={"a": "m1", "b": EVIL})
    for tenth in range(100):
        owners = ("a",) * 20 + (("b",) if tenth < 50 else ("a",)) * 20
        line.snapshots.append(Snapshot(tenth / 10, owners, 80 if tenth < 50 else 40, 0, safe=True))
    line.events.append(Event(5, "kill", EVIL))
    waits = [Progress(pause_ms=5, at_s=tenth / 4) for tenth in range(40)]
    return report.Findings("rows", 10, ("id",), [report.Phase("kill", 1.5, "x")], line, waits)


def test_the_page_is_drawn_and_fits_and_says_what_is_under_the_pointer(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    report.write_page(findings(), file)
    with chromium() as browser:
        for size, scheme in (({"width": 1180, "height": 860}, "light"), (PHONE, "dark")):
            tab = Tab(browser, viewport=size, color_scheme=scheme)
            requests: list[str] = []
            tab.page.on("request", lambda one, requests=requests: requests.append(one.url))
            tab.page.goto(file.as_uri())
            canvas = tab.page.locator("canvas").first
            canvas.wait_for()
            assert tab.page.locator("canvas").count() == 3
            box = canvas.bounding_box()
            assert box is not None
            canvas.hover(position={"x": box["width"] * 0.9, "y": box["height"] * 0.85})
            tip = tab.page.locator(".tip").first
            assert ": m1\nfrom 5 s" in tip.inner_text()
            canvas.hover(position={"x": box["width"] * 0.25, "y": box["height"] * 0.85})
            assert f": {EVIL}\nfrom 0 s" in tip.inner_text()
            colour = canvas.evaluate(
                "(one) => [...one.getContext('2d').getImageData(one.width * 0.9, one.height * 0.85, 1, 1).data]"
            )
            assert colour[:3] == ([78, 121, 167] if scheme == "light" else [111, 159, 209])
            assert tab.overflow() == []
            assert (tab.wrong, tab.dialogs, requests) == ([], [], [file.as_uri()])
            tab.close()
