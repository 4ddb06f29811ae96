"""Options of the Spark data source `holdfast`, checked before anything is read or written.

Example: `spark.read.format("holdfast").option("address", "127.0.0.1:5701").load("flights")`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.config.client_tls import ClientTls
from holdfast.errors import ConfigError
from holdfast.spark.source.read_options import READ_MEANING, ReadOptions
from holdfast.spark.source.write_options import WRITE_FORMATS, WRITE_MEANING, WriteOptions
from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.client.blocking import Client

FORMATS = WRITE_FORMATS

MEANING = {
    "address": "HOST:PORT of one or more members' client doors, with commas between them",
    "map": "the map to read or write; .load(name) and .save(name) do the same",
    "key": "the column, or columns with commas between them, whose values identify a row (writing only)",
    "user": "user name, if the cluster requires one",
    "password": "password",
    "token": "token, instead of user and password",
    "tls": "true: use TLS; the other TLS options imply it",
    "tlsCa": "file (PEM) with the authorities that sign for members, on each host that runs tasks; default: those that "
    "the system trusts",
    "tlsCertificate": "certificate file (PEM), for members that require one",
    "tlsKey": "file (PEM) with its private key, if it is a separate file",
    "tlsKeyPassword": "password of that key",
    "tlsVerifyHost": "false: accept a member's certificate for any host",
    "cluster": "name that the cluster must have; any if left out",
    "valueFormat": "json (one JSON object a row), compact (one Compact object a row), primitive (one column as a plain "
    "value) or binary (columns key and value, in their stored form)",
    "columns": "only these columns, with commas between them (reading only)",
    **READ_MEANING,
    "ttl": "seconds after which a written entry ends (writing only)",
    "numPartitions": "Spark tasks that read; default: a handful",
    "timeout": "seconds for which a task tries to reach a partition that moves or is not served; default 60",
    **WRITE_MEANING,
}

_KNOWN = {name.lower(): name for name in MEANING}
_SECRET = frozenset({"password", "token", "tlskeypassword"})
_ALIASES = {"path": "map", "username": "user"}
"""Other spellings. Spark passes NAME of .load(NAME) and .save(NAME) as the option `path`."""

TIMEOUT_S = 60.0
"""Long enough for the cluster to detect a dead member and promote backups of its partitions."""

RESERVED = "__"


@dataclass(frozen=True, slots=True)
class Options:
    address: str
    map: str
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    value_format: str | None = None
    ttl_ms: int | None = None
    tasks: int | None = None
    timeout_s: float = TIMEOUT_S
    read: ReadOptions = field(default_factory=ReadOptions)
    cluster: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: ClientTls | None = None
    write: WriteOptions = field(default_factory=WriteOptions)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Raises ConfigError, which names the option and its allowed values."""
        found: dict[str, str] = {}
        for written, value in given.items():
            name = _ALIASES.get(written.lower(), written.lower())
            if name not in _KNOWN:
                close = difflib.get_close_matches(name, _KNOWN, n=1)
                hint = (
                    f"did you mean {_KNOWN[close[0]]}?" if close else f"the options are {', '.join(MEANING)}"
                )
                raise ConfigError(f"unknown option {written!r}: {hint}")
            if found.setdefault(name, value) != value:
                values = "" if name in _SECRET else f": {found[name]!r} and {value!r}"
                raise ConfigError(f"the option {_KNOWN[name]} is given twice{values}")
        for name in ("address", "map"):
            if not found.get(name):
                raise ConfigError(f"the option {name} is missing: {MEANING[name]}")
        if found["map"].startswith(RESERVED):
            raise ConfigError(f"map names that begin with {RESERVED!r} are Holdfast's own: {found['map']!r}")
        value_format = found.get("valueformat", "").lower() or None
        if value_format not in (None, *FORMATS):
            raise ConfigError(
                f"valueFormat is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {found['valueformat']!r}"
            )
        ttl = _number(found, "ttl", above=0.0)
        tasks = _number(found, "numpartitions", above=0.0)
        if tasks is not None and tasks != int(tasks):
            raise ConfigError(f"numPartitions is a whole number, not {found['numpartitions']!r}")
        return cls(
            address=found["address"],
            map=found["map"],
            key=_names(found.get("key", "")),
            columns=_names(found.get("columns", "")),
            value_format=value_format,
            ttl_ms=None if ttl is None else max(1, round(ttl * 1000)),
            tasks=None if tasks is None else int(tasks),
            timeout_s=_number(found, "timeout", above=0.0) or TIMEOUT_S,
            read=ReadOptions.parse(found),
            cluster=found.get("cluster"),
            user=found.get("user"),
            password=found.get("password"),
            token=found.get("token"),
            tls=_tls(found),
            write=WriteOptions.parse(found),
        )

    def client(self, more_addresses: Sequence[str] = ()) -> Client:
        """A client with these credentials. `more_addresses`: members discovered since, in case those in `address` are
        gone.
        """
        from holdfast.client.blocking import Client

        return Client(
            [self.address, *more_addresses],
            cluster=self.cluster,
            username=self.user,
            password=self.password,
            token=self.token,
            tls=self.tls,
            timeout_s=self.timeout_s,
            release=__version__,
        )


def _tls(found: Mapping[str, str]) -> ClientTls | None:
    wanted = _truth(found, "tls")
    given = [name for name in found if name.startswith("tls") and name != "tls"]
    if wanted is None and not given:
        return None
    if wanted is False:
        if given:
            raise ConfigError(f"the options tls = false and {_KNOWN[given[0]]} contradict each other")
        return None
    verify_host = _truth(found, "tlsverifyhost")
    return ClientTls(
        found.get("tlsca"),
        found.get("tlscertificate"),
        found.get("tlskey"),
        found.get("tlskeypassword"),
        verify_host=verify_host is not False,
    )


def _truth(found: Mapping[str, str], name: str) -> bool | None:
    said = found.get(name)
    if said is not None and said.lower() not in ("true", "false"):
        raise ConfigError(f"{_KNOWN[name]} is true or false, not {said!r}: {MEANING[_KNOWN[name]]}")
    return None if said is None else said.lower() == "true"


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _number(found: Mapping[str, str], name: str, *, above: float) -> float | None:
    text = found.get(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        # Rejected below, like NaN and infinity.
        number = above
    if not above < number < 1e12:
        raise ConfigError(
            f"{_KNOWN[name]} is a number above {above:g}, not {text!r}: {MEANING[_KNOWN[name]]}"
        )
    return number
