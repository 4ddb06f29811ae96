"""Members start as the image, compose.yaml, the Kubernetes manifest and the systemd unit run them.

Each runs with exactly the packages that the Dockerfile (for the unit: docs/deploying.md) installs, whatever else is in
this environment, and with the settings of the file itself. Other than there are only addresses, ports and folders.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.ops.test_manifests import COMPOSE, DOCKERFILE, ROOT, UNIT, container, environment, manifests

from holdfast.config import load
from holdfast_lab.processes.local_cluster import free_ports

yaml = pytest.importorskip("yaml")

DEPLOYING = ROOT / "docs/deploying.md"
OWN = "holdfast"
CERTIFICATE = [
    *("openssl", "req", "-x509", "-nodes", "-days", "2"),
    *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
]


def image_extras() -> set[str]:
    """The extras with which the Dockerfile installs Holdfast."""
    return _extras(r"pip install .*-c constraints\.txt .*\.whl\)\[([\w,-]+)\]", DOCKERFILE)


def unit_extras() -> set[str]:
    """The extras with which the page on the unit installs it."""
    return _extras(r"/opt/holdfast/bin/pip install '\.\[([\w,-]+)\]'", DEPLOYING)


def _extras(pattern: str, file: Path) -> set[str]:
    found = re.search(pattern, file.read_text(encoding="utf-8"))
    assert found is not None, f"{file.name} installs Holdfast no more as this test expects"
    return set(found[1].split(","))


def packages(extras: set[str]) -> set[str]:
    """Every distribution that pip would install for Holdfast with these extras: those, and what they need."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found: set[str] = set()
    waiting = [Requirement(one) for one in wanted]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += [Requirement(more) for more in distribution(name).requires or ()]
    return found


def test_the_image_pins_exactly_what_it_installs() -> None:
    pinned = re.search(r"\^\(\(([\w|-]+)\)==", DOCKERFILE.read_text(encoding="utf-8"))
    assert pinned is not None
    assert set(pinned[1].split("|")) == packages(image_extras())


class Packages:
    """The environment of processes that find no other packages than these."""

    def __init__(self, folder: Path, extras: set[str]) -> None:
        mine = packages(extras)
        absent = sorted(
            module
            for module, names in packages_distributions().items()
            if not ({canonicalize_name(name) for name in names} & mine) and not module.startswith((OWN, "_"))
        )
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(
            "from importlib.machinery import PathFinder\n"
            f"_find, _absent = PathFinder.find_spec, frozenset({absent!r})\n"
            "PathFinder.find_spec = classmethod(lambda cls, name, path=None, target=None: None\n"
            "    if path is None and name in _absent else _find(name, path, target))\n",
            encoding="utf-8",
        )
        left_out = ("HOLDFAST_", "PYTHONPATH", "VIRTUAL_ENV")
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(left_out)},
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")]),
        }


class Running:
    """A member, started as somebody's file says."""

    def __init__(
        self, arguments: list[str], settings: Mapping[str, str], packages: Packages, log: Path
    ) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *arguments],
                env={**packages.environment, **settings},
                cwd=log.parent,
                stdout=out,
                stderr=out,
            )

    def wait_ready(self, members: Sequence[Running] = ()) -> str:
        """Its log, once it is ready. Fails if it, or one of the members that it waits for, has ended."""
        while "ready uuid=" not in (said := self._log.read_text(encoding="utf-8")):
            for each in (self, *members):
                assert each._process.poll() is None, each._log.read_text(encoding="utf-8")
            time.sleep(0.05)
        return said

    def end(self) -> None:
        """SIGTERM, as all of them end a member."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def ports(numbers: list[int]) -> dict[str, str]:
    named = dict(
        zip(("MEMBER_CLIENT_PORT", "MEMBER_MEMBER_PORT", "HTTP_PORT"), map(str, numbers), strict=True)
    )
    return {f"HOLDFAST_{name}": number for name, number in named.items()}


@pytest.mark.timeout(600)
def test_the_members_of_the_compose_file_start(tmp_path: Path) -> None:
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    doors = {name: free_ports(3) for name in services}
    installed = Packages(tmp_path / "packages", image_extras())
    members = []
    try:
        for name, service in services.items():
            folder = tmp_path / name
            folder.mkdir()
            settings = dict(service["environment"])
            assert "command" not in service, "the image's own is `start`"
            seeds = settings["HOLDFAST_CLUSTER_SEEDS"]
            for host, (_, member, _) in doors.items():
                seeds = seeds.replace(f"{host}:5751", f"127.0.0.1:{member}")
            settings |= {
                "HOLDFAST_CLUSTER_SEEDS": seeds,
                "HOLDFAST_MEMBER_PUBLIC_HOST": "127.0.0.1",
                "HOLDFAST_PERSISTENCE_DIRECTORY": _here(settings["HOLDFAST_PERSISTENCE_DIRECTORY"], folder),
                **ports(doors[name]),
            }
            members.append(Running(["start"], settings, installed, folder / "log"))
        for member in members:
            assert "files opened: " in member.wait_ready(members)
        for member in members:
            member.end()
        statuses = [member.wait() for member in members]
        # The last ones have nobody to leave their copies to.
        assert (statuses[0], set(statuses) <= {0, 1}) == (0, True)
        assert all((tmp_path / name / "data" / "identity.json").exists() for name in services)
    finally:
        for member in members:
            member.kill()


def _here(path: str, folder: Path) -> str:
    """The same path, under the folder that stands for the volume of /var/lib/holdfast."""
    assert path.startswith("/var/lib/holdfast/")
    return path.replace("/var/lib/holdfast", str(folder))


def _start_alone(arguments: list[str], settings: dict[str, str], extras: set[str], folder: Path) -> None:
    installed = Packages(folder / "packages", extras)
    member = Running(arguments, settings, installed, folder / "log")
    try:
        assert "files opened: " in member.wait_ready()
        member.end()
        assert member.wait() == 0
    finally:
        member.kill()
    assert (folder / "data" / "identity.json").exists()


def test_a_pod_of_the_kubernetes_manifest_starts(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    tls.mkdir()
    made = [
        *CERTIFICATE,
        "-subj",
        "/CN=holdfast",
        "-keyout",
        str(tls / "tls.key"),
        "-out",
        str(tls / "tls.crt"),
    ]
    subprocess.run(
        [*made, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True
    )
    (tls / "ca.crt").write_bytes((tls / "tls.crt").read_bytes())
    text = manifests()["ConfigMap/holdfast"]["data"]["holdfast.toml"]
    text = text.replace("/etc/holdfast/tls", str(tls)).replace("/var/lib/holdfast", str(tmp_path))
    config = tmp_path / "holdfast.toml"
    config.write_text(text, encoding="utf-8")
    numbers = free_ports(3)
    settings = {
        **environment("holdfast-0"),
        "HOLDFAST_CLUSTER_SEEDS": f"127.0.0.1:{numbers[1]}",
        "HOLDFAST_CLUSTER_INITIAL_MEMBERS": "1",
        "HOLDFAST_MEMBER_PUBLIC_HOST": "127.0.0.1",
        **ports(numbers),
    }
    arguments = [str(config) if one == "/etc/holdfast/holdfast.toml" else one for one in container()["args"]]
    _start_alone(arguments, settings, image_extras(), tmp_path)


def test_the_member_of_the_systemd_unit_starts(tmp_path: Path) -> None:
    unit = UNIT.read_text(encoding="utf-8")
    (line,) = re.findall(r"(?m)^ExecStart=/opt/holdfast/bin/holdfast (.+)$", unit)
    given = dict(one.split("=", 1) for one in re.findall(r"(?m)^Environment=(\S+)$", unit))
    said = re.search(
        r'`persistence\.directory = "(/var/lib/holdfast/[^"]+)"`', DEPLOYING.read_text(encoding="utf-8")
    )
    assert said is not None
    config = tmp_path / "holdfast.toml"
    config.write_text(f'[persistence]\ndirectory = "{_here(said[1], tmp_path)}"\n', encoding="utf-8")
    arguments = line.replace("/etc/holdfast/holdfast.toml", str(config)).split()
    _start_alone(arguments, {**given, **ports(free_ports(3))}, unit_extras(), tmp_path)


def test_members_that_keep_files_are_given_what_they_need() -> None:
    assert load(None, environment("holdfast-0")).cluster.initial_members == 1, (
        "the manifest's file has the number"
    )
    assert "arrow" in image_extras() & unit_extras()
