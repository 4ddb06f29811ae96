"""ops/container/run.py: a container that is not started again and again because of a wrong setting."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
RUN = ROOT / "ops" / "container" / "run.py"


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, RUN, *arguments], stderr=subprocess.PIPE, text=True)


def test_a_wrong_setting_keeps_the_container_until_it_is_stopped() -> None:
    with started("start", "--set", "cluster.heartbeat_ms=0") as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)]
        assert "cluster.heartbeat_ms = '0' is not allowed" in said[0]
        assert said[1].startswith("holdfast: not started; correct the settings")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 2


def test_any_other_end_ends_the_container_with_its_status() -> None:
    with started("status", "-a", "127.0.0.1:1") as process:
        assert process.wait() == 4
    with started("status", "--nonsense") as process:
        assert process.wait() == 2, "only a member is worth waiting for"


def test_a_signal_drains_the_member() -> None:
    ports = ("--client-port", "0", "--member-port", "0", "--set", "http.enabled=false")
    command = [sys.executable, RUN, "start", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready uuid=" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert "left the cluster" in process.stdout.read()
        assert process.wait() == 0


def test_the_image_and_the_compose_file_use_it() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["/opt/holdfast/bin/python", "/opt/holdfast/run.py"]' in dockerfile
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert {service["restart"] for service in services.values()} == {"on-failure"}
