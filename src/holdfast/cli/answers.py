"""JSON output of `--json`; `docs/schemas` describes it."""

from __future__ import annotations

import json
import sys

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Plain JSON, for scripts.")


def tell_json(answer: object) -> None:
    """Print one line of JSON, at once: whoever reads along is not to wait for the next one."""
    json.dump(answer, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()
