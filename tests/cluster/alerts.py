"""The alerts of a cluster, as its operator gets them: by a real Prometheus, with configuration and rules of `ops`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from holdfast_lab.processes.local_cluster import HOST, free_ports

OPS = Path(__file__).parent.parent.parent / "ops" / "prometheus"
PROGRAM = shutil.which("prometheus")
SCRAPE = "500ms"
MEMBER_DOWN = "HoldfastMemberDown"
ASK_S = 5.0
END_S = 10.0
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Whatever proxy the machine has, these doors are on it."""

Alert = tuple[str, str]
"""Its name, and the door that it is about; "" when it is about the cluster."""


def hurried(rules: str) -> str:
    """These rules with seconds where they say minutes. What they ask for is as it was."""
    text, count = re.subn(r"(?m)^( +for: \d+)m$", r"\1s", rules)
    expressions = re.compile(r"(?m)^ +expr: .*$")
    assert count > 0, "no rule waits for minutes"
    assert expressions.findall(text) == expressions.findall(rules)
    return text


def pointed(config: str, doors: Iterable[str]) -> str:
    """This configuration with the doors of members of a test, looked at twice a second."""
    text, times = re.subn(r"(?m)^(  (?:scrape|evaluation)_interval: ).*$", rf"\g<1>{SCRAPE}", config)
    text, targets = re.subn(r"- targets: \[.*\]", lambda _: f"- targets: {json.dumps(list(doors))}", text)
    assert (times, targets) == (2, 1), "the configuration has changed: change it here"
    return text


def _got(url: str) -> str:
    with DIRECTLY.open(url, timeout=ASK_S) as answer:
        text: str = answer.read().decode()
    return text


class ByPrometheus:
    """A real Prometheus that watches these doors. A context manager: what it starts it ends."""

    def __init__(self, folder: Path, doors: list[str]) -> None:
        """`folder` is made, and keeps its files; `doors` are HOST:PORT of the members' doors for HTTP."""
        assert PROGRAM is not None, "Prometheus is not installed"
        folder.mkdir()
        rules = (OPS / "holdfast-alerts.yml").read_text(encoding="utf-8")
        config = (OPS / "prometheus.yml").read_text(encoding="utf-8")
        (folder / "holdfast-alerts.yml").write_text(hurried(rules), encoding="utf-8")
        (folder / "prometheus.yml").write_text(pointed(config, doors), encoding="utf-8")
        (port,) = free_ports(1, (int(door.rpartition(":")[2]) for door in doors))
        self._api = f"http://{HOST}:{port}/api/v1"
        self._log = folder / "prometheus.log"
        command = [PROGRAM, f"--config.file={folder / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={HOST}:{port}"]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self._log.read_text(errors="replace")[-2000:])
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _asked(self, path: str) -> Any:
        assert self._process.poll() is None, "Prometheus has ended"
        return json.loads(_got(f"{self._api}/{path}"))["data"]

    def seen(self) -> set[str]:
        """The doors whose metrics it reads now."""
        try:
            targets = self._asked("targets?state=active")["activeTargets"]
        except OSError:
            return set()  # It is starting.
        return {target["labels"]["instance"] for target in targets if target["health"] == "up"}

    def firing(self, severity: str = "") -> set[Alert]:
        """The alerts that fire now; with `severity`, those only."""
        return {
            (alert["labels"]["alertname"], alert["labels"].get("instance", ""))
            for alert in self._asked("alerts")["alerts"]
            if alert["state"] == "firing" and severity in ("", alert["labels"]["severity"])
        }


class ByParser:
    """Where there is no Prometheus: the pages are read by the parser of its Python client. No rule is evaluated; who
    does not answer is taken for down.
    """

    def __init__(self, folder: Path, doors: list[str]) -> None:
        """As of `ByPrometheus`; no files are kept."""
        self._doors = doors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def seen(self) -> set[str]:
        """The doors whose metrics can be read now."""
        return {door for door in self._doors if _readable(door)}

    def firing(self, severity: str = "") -> set[Alert]:
        """Who is down."""
        return {(MEMBER_DOWN, door) for door in set(self._doors) - self.seen()}


def _readable(door: str) -> bool:
    try:
        page = _got(f"http://{door}/metrics")
    except OSError:
        return False
    return any(family.name == "holdfast_ready" for family in text_string_to_metric_families(page))
