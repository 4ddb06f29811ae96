"""The steps of the Dockerfile, carried out in a folder: what they make is a member that starts, is alive, and drains.

Docker is not needed: `COPY` copies, `RUN` runs, and the paths of the image are folders under one root. Left out is only
what a container has for itself, and what is named here: the packages of the distribution, and the user.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast_lab.processes.local_cluster import free_ports

ROOT = Path(__file__).parents[2]
INSIDE = ("/opt/", "/src", "/wheels", "/var/lib/holdfast", "/etc/holdfast")
"""Paths of the image that are folders here."""
LEFT_OUT = ("apt-get ", "groupadd ")
"""Beginnings of steps that need a container, or another user."""


class Image:
    """What the Dockerfile makes, under a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.left_out: list[str] = []
        self.stage = ""

    def inside(self, text: str) -> str:
        """The same, with the paths of the image where they are here. Both stages share one root: the second takes from
        the first what is at the same path.
        """
        paths = "|".join(map(re.escape, INSIDE))
        return re.sub(rf"(?<![\w.-])({paths})", lambda match: f"{self.folder}{match.group(1)}", text)

    def run(self, command: str) -> None:
        if command.startswith(LEFT_OUT):
            self.left_out.append(command)
            return
        # The owner of a folder is whoever runs this.
        command = re.sub(r" && chown \S+ \S+", "", command)
        ran = subprocess.run(
            ["/bin/bash", "-ec", self.inside(command)],
            cwd=self.folder / self.labels["WORKDIR"].lstrip("/"),
            env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"

    def copy(self, words: list[str]) -> None:
        source = self.folder if words[0].startswith("--from=") else ROOT
        *what, to = [word for word in words if not word.startswith("--from=")]
        target = (
            (self.folder / self.labels["WORKDIR"].lstrip("/") / to)
            if to.startswith(".")
            else Path(self.inside(to))
        )
        for each in what:
            found = source / each.lstrip("/") if source == self.folder else source / each
            if found == target:
                continue  # From the first stage, at the same path.
            if found.is_dir():
                shutil.copytree(
                    found, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"), dirs_exist_ok=True
                )
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target / found.name if to.endswith("/") else target)

    def build(self, dockerfile: str) -> None:
        lines = re.sub(r"(?m)^\s*#.*\n", "", dockerfile).replace("\\\n", " ").splitlines()
        for line in filter(None, map(str.strip, lines)):
            word, _, rest = line.partition(" ")
            match word:
                case "FROM":
                    self.labels["WORKDIR"] = "/"
                case "WORKDIR":
                    self.labels["WORKDIR"] = rest
                    (self.folder / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self.copy(rest.split())
                case "RUN":
                    self.run(rest)
                case "ENV":
                    for each in shlex.split(rest):
                        name, _, value = each.partition("=")
                        self.environment[name] = self.inside(value).replace("$PATH", os.environ["PATH"])
                case "HEALTHCHECK":
                    self.labels[word] = rest.partition("CMD ")[2]
                case "ENTRYPOINT" | "CMD" | "STOPSIGNAL" | "USER" | "VOLUME" | "EXPOSE":
                    self.labels[word] = rest
                case _:
                    raise AssertionError(f"a step of which this test knows nothing: {line}")

    def words(self, label: str) -> list[str]:
        return [self.inside(word) for word in json.loads(self.labels[label])]


@pytest.mark.slow
def test_the_steps_of_the_dockerfile_make_a_member(tmp_path: Path) -> None:
    image = Image(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    image.build((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert [command.split()[0] for command in image.left_out] == ["apt-get", "groupadd"]
    client, member, http = free_ports(3)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
        **image.environment,
        "HOLDFAST_MEMBER_CLIENT_PORT": str(client),
        "HOLDFAST_MEMBER_MEMBER_PORT": str(member),
        "HOLDFAST_HTTP_PORT": str(http),
        "HOLDFAST_PERSISTENCE_DIRECTORY": image.inside("/var/lib/holdfast/data"),
        "HOLDFAST_LOG_FORMAT": "json",
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            image.words("ENTRYPOINT") + image.words("CMD"),
            stdout=out,
            stderr=out,
            env=environment,
            cwd=tmp_path,
        )
    try:
        until_s = time.monotonic() + 60
        while "ready uuid=" not in log.read_text(encoding="utf-8"):
            assert process.poll() is None and time.monotonic() < until_s, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        said = [json.loads(line)["message"] for line in log.read_text(encoding="utf-8").splitlines()]
        assert any(line.startswith("the data lane is") for line in said)
        from holdfast.config.schema import SECTIONS

        if "http" in SECTIONS:
            healthy = subprocess.run(image.words("HEALTHCHECK"), env=environment, check=False)
            assert healthy.returncode == 0
        process.send_signal(getattr(signal, image.labels["STOPSIGNAL"]))
        assert process.wait(60) == 0
        ended = subprocess.run(image.words("HEALTHCHECK"), env=environment, check=False)
        assert ended.returncode == 1, "who has ended is not alive"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
