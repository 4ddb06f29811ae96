"""`holdfast member`: drain, demote, promote and evict single members."""

from __future__ import annotations

import click

from holdfast.cli.action_commands import add_actions


@click.group
def member() -> None:
    r"""Manage single members. MEMBER is a name, the first digits of a UUID, or a client address.

    \b
      holdfast member drain three
      holdfast member demote 127.0.0.1:5702
    """


add_actions(member, "member")
