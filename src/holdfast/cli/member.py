"""`holdfast member`: one member leaves, stops holding partitions, or begins to."""

from __future__ import annotations

import sys
from functools import partial

import click

from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import Give, timeout_option, together
from holdfast.client.operator import MemberStatus, order
from holdfast.client.routing import parse_addresses
from holdfast.wire import own


@click.group(short_help="Drain members; promote and demote lite ones.")
def member() -> None:
    r"""Orders to single members, each named by the address of its client door.

    \b
      holdfast member drain 127.0.0.1:5703
      holdfast member demote 127.0.0.1:5702
      holdfast member promote 127.0.0.1:5702

    Exit status: 0 when it is so; 1 when it was refused, or a member does not answer; 2 when the call is wrong; 3 when
    it is not so in time, and the order stands. Credentials are needed when the members have any configured.
    """


def _give(
    addresses: tuple[str, ...], credentials: Credentials, want: own.Want, timeout_s: float
) -> dict[str, Give]:
    known = credentials.for_client()
    return {
        str(address): partial(order, address, known, want, timeout_s=timeout_s)
        for address in parse_addresses(addresses)
    }


@member.command(short_help="Let members leave when their data is safe elsewhere.")
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@timeout_option(600)
@credentials
def drain(addresses: tuple[str, ...], *, timeout_s: float, credentials: Credentials) -> None:
    r"""Let these members leave the cluster, each when everything it holds is safe on others. Their processes end.

    Several leave at the same time; none waits for another one.

    \b
      holdfast member drain 127.0.0.1:5703
      holdfast member drain 127.0.0.1:5703 127.0.0.1:5704 --timeout 60
    """
    sys.exit(together(_give(addresses, credentials, own.Want.LEAVE, timeout_s), "has left"))


@member.command(short_help="Let a member hold no partitions any more, and stay.")
@click.argument("address", metavar="HOST:PORT")
@timeout_option(600, "The order is taken back after that.")
@credentials
def demote(address: str, *, timeout_s: float, credentials: Credentials) -> None:
    r"""Make a member a lite one when its partitions are safe elsewhere: it goes on serving clients, and holds nothing.

    The last data member stays one.

    \b
      holdfast member demote 127.0.0.1:5702
    """
    sys.exit(together(_give((address,), credentials, own.Want.LITE, timeout_s), "is a lite member"))


@member.command(short_help="Let a lite member hold partitions.")
@click.argument("address", metavar="HOST:PORT")
@timeout_option(60)
@credentials
def promote(address: str, *, timeout_s: float, credentials: Credentials) -> None:
    r"""Make a lite member one that holds partitions. It is given its share afterwards: see `holdfast cluster watch`.

    \b
      holdfast member promote 127.0.0.1:5702
    """

    def progress(_: MemberStatus) -> str:
        return "still a lite member"

    gives = _give((address,), credentials, own.Want.DATA, timeout_s)
    sys.exit(together(gives, "may hold partitions now", progress))
