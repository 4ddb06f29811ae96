"""The examples of docs/in-process.md run and print what they say, and a type checker understands them."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[3]
EXAMPLES = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "in-process.md").read_text(encoding="utf-8"), re.DOTALL
)


def said(example: str) -> list[str]:
    """What the comments of an example say that it prints."""
    return [
        found[1]
        for line in example.splitlines()
        if (found := re.match(r"\s*(?:print\(.*\) {2})?# (?!type:)(.+)", line))
    ]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_prints_what_it_says(number: int) -> None:
    example = EXAMPLES[number]
    assert said(example)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example, f"in-process.md, example {number + 1}", "exec"), {"__name__": "__main__"})
    assert printed.getvalue().split() == " ".join(said(example)).split()


WRONG = """
import holdfast
import holdfast.aio


async def main(member: holdfast.Member) -> None:
    flights: holdfast.Map[str, int] = member.map("flights")
    await flights.put("a", "text")
    await flights.put("a", 1, ttl="soon")
    async for key, value in flights.entries():
        reveal_type((key, value))
    reveal_type(await flights.entries())
    reveal_type(await flights.get("a"))
    flights.listen(lambda change: print(change.member, change.nothing))
    holdfast.Member(client_port="5701")
    holdfast.Serializers(integers="wide")


async def outside(client: holdfast.aio.Client) -> None:
    seats: holdfast.aio.Map[str, int] = client.map("seats")
    await seats.put("a", "text")
    reveal_type(await seats.get("a"))
"""
TOLD = [
    (8, 'Argument 2 to "put" of "Map" has incompatible type "str"'),
    (9, 'Unexpected keyword argument "ttl" for "put" of "Map"'),
    (11, 'Revealed type is "tuple[str, int]"'),
    (12, 'Revealed type is "dict[str, int]"'),
    (13, 'Revealed type is "int | None"'),
    (14, '"EntryChange" has no attribute "nothing"'),
    (15, 'Argument "client_port" to "Member" has incompatible type "str"'),
    (16, 'Argument "integers" to "Serializers" has incompatible type'),
    (21, 'Argument 2 to "put" of "Map" has incompatible type "str"'),
    (22, 'Revealed type is "int | None"'),
]


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(holdfast.__file__).parent / "py.typed").exists()


@pytest.mark.slow  # The checker reads the whole package, as it is installed.
def test_programs_are_checked_against_the_installed_package(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    installed = packages / "holdfast"
    shutil.copytree(
        Path(holdfast.__file__).parent,
        installed,
        ignore=lambda folder, names: [
            name
            for name in names
            if not (Path(folder, name).is_dir() or name.endswith((".py", ".pyi", ".typed")))
        ],
    )
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    right = tmp_path / "right.py"
    bodies = [re.sub(r"\bmain\b", f"main{number}", example) for number, example in enumerate(EXAMPLES)]
    right.write_text("\n".join(bodies), encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG, encoding="utf-8")
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            f"--cache-dir={tmp_path / 'cache'}",
            f"--python-executable={environment / 'bin' / 'python'}",
            right,
            wrong,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in checked.stdout.splitlines() if line.startswith(("right", "wrong"))]
    assert not [line for line in lines if line.startswith("right")]
    found = [
        (int(line.split(":")[1]), line.split(": ", 2)[2])
        for line in lines
        if ": note:" not in line or "Revealed" in line
    ]
    assert len(found) == len(TOLD), checked.stdout
    for (line_number, message), (expected_line, expected) in zip(found, TOLD, strict=True):
        assert (line_number, message.startswith(expected)) == (expected_line, True), message
