"""How much memory a member may take, and has taken: read from the kernel, and from what is free inside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import holdfast
from holdfast.core.model.result_columns import size
from holdfast.core.model.views import Room
from holdfast.runtime.memory import Gauge, Limit, _room, container_bytes, limit_of

MB = 1 << 20


def laid(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "300000000\n"}, 300_000_000),
        (
            {
                "proc/self/cgroup": "0::/pod/one\n",
                "sys/fs/cgroup/pod/one/memory.max": "max\n",
                "sys/fs/cgroup/pod/memory.max": "200000000\n",
            },
            200_000_000,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/abc\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "100000000\n",
            },
            100_000_000,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            None,
        ),
    ],
)
def test_the_limit_of_a_container_is_found(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    assert container_bytes(laid(tmp_path, files)) == expected


def test_what_is_given_wins_and_else_it_is_said_where_the_limit_is_from() -> None:
    assert limit_of(5 * MB) == Limit(5 * MB, "limits.memory_bytes")
    found = limit_of(0)
    assert found.size > 100 * MB
    assert "memory" in found.because or "RLIMIT_AS" in found.because
    shown = CliRunner().invoke(holdfast, ["config"]).output
    assert f"# Here that is {size(found.size)}: {found.because}." in shown


def test_room_does_not_go_to_and_fro() -> None:
    seen = []
    room = Room.PLENTY
    for part in (0.5, 0.79, 0.80, 0.76, 0.81, 0.89, 0.90, 0.86, 0.84, 0.76, 0.74, 0.95, 0.1):
        room = _room(part, room)
        seen.append(room.name[0])
    assert "".join(seen) == "PPLLLLNNLLPNP"


LIFE = """
import json, msgspec, os, random, resource, sys
from holdfast.runtime.memory import Gauge, limit_of, prepare
size, count = int(sys.argv[1]), int(sys.argv[2])
MB = 1 << 20
prepare(files=False, memory_bytes=100 * MB)
limit = limit_of(100 * MB)
gauge = Gauge(limit)
told = {"limit": limit.size, "because": limit.because}
def look(name):
    gauge._next_inside_s = gauge._next_trim_s = 0
    gauge.look()
    told[name] = msgspec.to_builtins(gauge.status())
entries = {}
def fill():
    while gauge.look().name == "PLENTY":
        for _ in range(count):
            entries[os.urandom(16)] = os.urandom(size)
look("empty")
fill()
look("filled")
keys = list(entries)
random.Random(1).shuffle(keys)
for key in keys[: len(keys) // 2]:
    del entries[key]
del keys
look("half")
told["fits"] = gauge.fits(MB), gauge.fits(40 * MB)
fill()
look("again")
entries.clear()
look("cleared")
print(json.dumps(told))
"""


@pytest.mark.parametrize(("size", "count"), [(100, 1000), (1000, 300), (100_000, 3)])
def test_what_is_removed_counts_no_more_though_the_kernel_has_it_not_back(size: int, count: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIFE, str(size), str(count)], capture_output=True, text=True, check=True
    )
    told = json.loads(run.stdout)
    assert told["empty"]["room"] == "plenty"
    assert told["filled"]["room"] == "little"
    assert told["filled"]["used_bytes"] < 85 * MB
    assert told["half"]["room"] == "plenty"
    # Half of what was filled, and what was there before.
    expected = (told["filled"]["used_bytes"] + told["empty"]["used_bytes"]) / 2
    assert abs(told["half"]["used_bytes"] - expected) < 15 * MB
    assert told["fits"] == [True, False]
    assert told["again"]["resident_bytes"] < 100 * MB, "what was free inside was used again"
    assert told["cleared"]["room"] == "plenty"


def test_address_space_limits_too() -> None:
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "from holdfast.runtime.memory import Gauge, limit_of\n"
        "limit = limit_of(0)\n"
        "assert limit.because == 'three quarters of what RLIMIT_AS leaves', limit\n"
        "assert 200 << 20 < limit.size < 384 << 20, limit\n"
        "assert limit_of(1 << 30) == limit_of(0)\n"
        "gauge, kept = Gauge(limit), []\n"
        "while gauge.look().name == 'PLENTY':\n"
        "    kept.append(bytes(1 << 20))\n"
        "assert len(kept) > 100, len(kept)\n"
        "kept.append(bytes(1 << 25))\n"
        "kept.clear()\n"
        "assert gauge.look().name == 'PLENTY', gauge.status()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_limit_that_is_taken_at_once_leaves_no_room() -> None:
    assert Gauge(Limit(MB, "a test")).look() is Room.NONE
