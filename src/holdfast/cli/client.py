"""`holdfast client`: the connections of clients."""

from __future__ import annotations

import click

from holdfast.cli.action_commands import add_actions


@click.group
def client() -> None:
    r"""List the connections of clients, and end them.

    \b
      holdfast client list
      holdfast client kill two 17
    """


add_actions(client, "client")
