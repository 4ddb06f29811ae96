"""From a TOML text, the environment and flags to checked settings."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast.config.addresses import is_loopback
from holdfast.config.describe import Key, keys_of, schema
from holdfast.config.schema import (
    BACKUPS_MAX,
    DEFAULT_MAP,
    NAMED,
    OWN_ATTRIBUTES,
    PREFIX,
    SECTIONS,
    MapSettings,
    Settings,
)
from holdfast.config.users import check_users
from holdfast.errors import ConfigError

FRAME_OVERHEAD_BYTES: Final = 65_536
"""What a frame may hold besides one key and one value: names, headers, expiry."""
CHANGES_BYTES_LEAST: Final = 16_384
"""Less than this is some dozens of changes."""
NAME_MAX: Final = 250
"""Characters of the name of a map, a user or a role."""


def load(
    text: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    origin: str = "the configuration",
    overrides_from: str = "the command line",
) -> Settings:
    """Settings from a TOML text, the environment and flags; the later one wins, key by key.

    `overrides` has dotted keys (`member.client_port`); one that is None is as good as absent, and a text is read as in
    the environment. `origin` names the TOML text in messages, `overrides_from` whoever has given these. Raises
    ConfigError when anything is unknown, of a wrong type, out of bounds, or at odds with another key.
    """
    values: dict[str, Any] = {}
    for key, value in _from_text(text, origin):
        values[key.dotted] = _convert(key, value, origin, strict=True)
    for key, variable, raw in _from_environ(environ or {}):
        values[key.dotted] = _convert(key, _spread(key, raw, variable), variable, strict=False)
    for dotted, value in (overrides or {}).items():
        if value is not None:
            key = find_key(dotted, overrides_from)
            if isinstance(value, str):
                values[dotted] = _convert(key, _spread(key, value, dotted), overrides_from, strict=False)
            else:
                given = list(value) if isinstance(value, tuple) else value
                values[dotted] = _convert(key, given, overrides_from, strict=True)

    tables = {
        section: table(
            **{key.name: values[key.dotted] for key in keys_of(section, table) if key.dotted in values}
        )
        for section, table in SECTIONS.items()
    }
    named: dict[str, Any] = {
        kind: {name: table(**own) for name, own in _tables(kind, values).items()}
        for kind, table in NAMED.items()
        if kind != "maps"
    }
    settings = Settings(**tables, **named, maps=_maps(values), given=frozenset(values))  # type: ignore[arg-type]
    for check in CHECKS:
        check(settings)
    return settings


def _from_text(text: str | None, origin: str) -> Iterator[tuple[Key, object]]:
    """The keys of a TOML text, each with its raw value."""
    try:
        document = tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} is not valid TOML: {error}") from None
    for section, content in document.items():
        if section not in SECTIONS and section not in NAMED:
            raise ConfigError(f"{origin}: unknown section [{section}]{_meant(section, [*SECTIONS, *NAMED])}")
        tables = content if section in NAMED else {section: content}
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise ConfigError(
                f"{origin}: {section} must be a section: write [{section}{'.NAME' * (section in NAMED)}]"
            )
        _check_somebody(section, tables, origin)
        for name, table in tables.items():
            for key, value in table.items():
                dotted = f"{section}.{name}.{key}" if section in NAMED else f"{section}.{key}"
                yield find_key(dotted, origin), value


def _check_somebody(section: str, tables: Mapping[str, object], origin: str) -> None:
    """Raises ConfigError for users or roles that are announced and not there: without users anybody may come in."""
    if section in ("users", "roles") and not (tables and all(tables.values())):
        empty = next((f"{section}.{name}" for name, table in tables.items() if not table), section)
        raise ConfigError(f"{origin}: [{empty}] has nothing in it: fill it, or take it out")


def _from_environ(environ: Mapping[str, str]) -> Iterator[tuple[Key, str, str]]:
    """The keys that environment variables set, each with the variable's name and text.

    Variables that merely begin alike (a container platform sets such as HOLDFAST_SERVICE_HOST) are left alone, unless
    their second word is a section or nearly one: then a mistake is likelier than an accident.
    """
    known = {key.variable: key for section, table in SECTIONS.items() for key in keys_of(section, table)}
    words = [section.upper() for section in (*SECTIONS, *NAMED)]
    for variable, raw in sorted(environ.items()):
        if not variable.startswith(PREFIX):
            continue
        section, _, rest = variable.removeprefix(PREFIX).partition("_")
        if section.lower() in NAMED and section.isupper():
            yield _named_key(section.lower(), variable, rest), variable, raw
        elif variable in known:
            yield known[variable], variable, raw
        elif rest and difflib.get_close_matches(section, words, n=1, cutoff=0.75):
            raise ConfigError(f"the environment: unknown variable {variable}{_meant(variable, list(known))}")


def _named_key(kind: str, variable: str, rest: str) -> Key:
    """The key that `HOLDFAST_MAPS_<rest>` sets; at the end, for names of maps may hold underscores too."""
    fields = sorted(NAMED[kind].__struct_fields__, key=len, reverse=True)
    for field in fields:
        name = rest.removesuffix(f"_{field.upper()}")
        if name not in {rest, ""}:
            name = DEFAULT_MAP if kind == "maps" and name == "DEFAULT" else name
            return find_key(f"{kind}.{name}.{field}", "the environment")
    raise ConfigError(
        f"the environment: {variable} must be {PREFIX}{kind.upper()}_<NAME>_<KEY> with one of the keys "
        f"{', '.join(sorted(field.upper() for field in fields))}"
    )


def find_key(dotted: str, origin: str) -> Key:
    """The key with this dotted name; a ConfigError with the nearest known one if there is none."""
    section, _, name = dotted.rpartition(".")
    kind, _, whose = section.partition(".")
    table = NAMED.get(kind) if "." in section else SECTIONS.get(section)
    if table is None:
        everything = [key.dotted for key in schema()]
        raise ConfigError(f"{origin}: unknown key {dotted}{_meant(dotted, everything)}")
    if kind in NAMED and not 0 < len(whose) <= NAME_MAX:
        raise ConfigError(
            f"{origin}: the name of a {kind.removesuffix('s')} has 1 to {NAME_MAX} characters, this one {len(whose)}: "
            f"{section}"
        )
    for key in keys_of(section, table):
        if key.name == name:
            return key
    names = [key.name for key in keys_of(section, table)]
    raise ConfigError(f"{origin}: unknown key {dotted}{_meant(name, names)}")


def _meant(word: str, known: list[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, or all of them."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _spread(key: Key, raw: str, variable: str) -> object:
    """An environment variable's text in the shape of its key: `a,b` for a list, `a=1,b=2` for a table."""
    if isinstance(key.default, list):
        return [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(key.default, dict):
        pairs = [part.partition("=") for part in raw.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise ConfigError(f"{variable} = {raw!r} is not allowed: give NAME=VALUE, separated by commas")
        return {name.strip(): value.strip() for name, _, value in pairs}
    return raw.strip().lower() if isinstance(key.default, bool) else raw


def _convert(key: Key, value: object, origin: str, *, strict: bool) -> object:
    """The value in the key's type; a ConfigError that names key, value and what is allowed if it does not fit."""
    try:
        return msgspec.convert(value, key.type, strict=strict)
    except msgspec.ValidationError:
        shown = "***" if key.secret else repr(value)
        raise ConfigError(
            f"{origin}: {key.dotted} = {shown} is not allowed: it must be {key.allowed}"
        ) from None


def _tables(kind: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is set in the tables of this kind, by name."""
    chosen: dict[str, dict[str, Any]] = {}
    for dotted, value in values.items():
        if dotted.startswith(f"{kind}."):
            name, _, field = dotted.removeprefix(f"{kind}.").rpartition(".")
            chosen.setdefault(name, {})[field] = value
    return chosen


def _maps(values: Mapping[str, Any]) -> dict[str, MapSettings]:
    """The settings of every map that is named, each over those of `default`."""
    chosen = {DEFAULT_MAP: {}, **_tables("maps", values)}
    return {name: MapSettings(**{**chosen[DEFAULT_MAP], **own}) for name, own in chosen.items()}


# -- checks between keys -------------------------------------------------------------------------------------


HOST_MAX = 253
"""Characters of a host's name."""


def _check_copies(settings: Settings) -> None:
    for name, entry in settings.maps.items():
        if entry.backups + entry.async_backups > BACKUPS_MAX:
            raise ConfigError(
                f"maps.{name}.backups = {entry.backups} and maps.{name}.async_backups = {entry.async_backups} are "
                f"{entry.backups + entry.async_backups} together: at most {BACKUPS_MAX} are allowed"
            )


def _check_attributes(settings: Settings) -> None:
    for name, value in settings.member.attributes.items():
        if name in OWN_ATTRIBUTES:
            raise ConfigError(
                f"member.attributes.{name} is not allowed: every member has an attribute {name!r} by itself"
            )
        if not re.fullmatch(r"[^\s=|,]{1,256}", name):
            raise ConfigError(
                f"member.attributes: {name!r} is no name of an attribute: 1 to 256 characters without space, '=', '|' "
                "and ','"
            )
        if not value or value != value.strip() or "|" in value or "," in value:
            raise ConfigError(
                f"member.attributes.{name} = {value!r} is not allowed: it is not empty, has no '|' and no ',', and no "
                "space at its ends, so that a filter can name it"
            )


def _check_reads(settings: Settings) -> None:
    for name, entry in settings.maps.items():
        if entry.reads == "confirmed" and entry.read_backups:
            raise ConfigError(
                f"maps.{name}.reads = 'confirmed' and maps.{name}.read_backups = true contradict each other: a "
                "backup may answer with an older value. Set one of them"
            )


def _check_changes(settings: Settings) -> None:
    for name, entry in settings.maps.items():
        if 0 < entry.changes_bytes < CHANGES_BYTES_LEAST:
            raise ConfigError(
                f"maps.{name}.changes_bytes = {entry.changes_bytes} is not allowed: a reader would be behind at once. "
                f"It must be 0, for no change stream, or at least {CHANGES_BYTES_LEAST}"
            )


def _check_suspicion(settings: Settings) -> None:
    cluster = settings.cluster
    if cluster.suspect_after_ms < 2 * cluster.heartbeat_ms:
        raise ConfigError(
            f"cluster.suspect_after_ms = {cluster.suspect_after_ms} is not allowed: it must be at least twice "
            f"cluster.heartbeat_ms, which is {cluster.heartbeat_ms}"
        )


def _check_addresses(settings: Settings) -> None:
    settings.seed_addresses()
    member = settings.member
    if member.member_port == member.client_port != 0:
        raise ConfigError(
            f"member.client_port = {member.client_port} is not allowed: member.member_port is the same"
        )
    public = member.public_host
    if len(public) > HOST_MAX or not public.isprintable() or " " in public:
        raise ConfigError(
            f"member.public_host = {public!r} is no host: a name or address of at most {HOST_MAX} characters"
        )
    kind = settings.partitions.group_by
    if kind in ("rack", "zone") and not (getattr(member, kind) or member.group or member.lite):
        raise ConfigError(f"member.{kind} must be set, because partitions.group_by is {kind!r}")


def _check_credentials(settings: Settings) -> None:
    security, host = settings.security, settings.member.host
    if bool(security.username) != bool(security.password):
        other = "password" if security.username else "username"
        raise ConfigError(f"security.{other} must be set too: username and password go together")
    if security.second_member_secret and not security.member_secret:
        raise ConfigError("security.member_secret must be set too, because security.second_member_secret is")
    if is_loopback(host) or security.allow_insecure_bind:
        return
    lacks = missing_for_open_address(settings)
    if lacks:
        raise ConfigError(
            f"member.host = {host!r} is not allowed without TLS and credentials, for others could read and change "
            f"everything. Set {'; and '.join(lacks)}; or listen on 127.0.0.1. In a network where nobody else is, "
            "security.allow_insecure_bind = true does without"
        )


def missing_for_open_address(settings: Settings) -> list[str]:
    """What is to be set before others may reach this member over a network, in words."""
    security, tls = settings.security, settings.tls
    missing: list[str] = []
    if not tls.enabled:
        missing.append("tls.certificate, tls.key and tls.ca (for TLS)")
    if not (settings.clients_authenticate or tls.client_certificates == "required"):
        missing.append("users, or security.username and security.password, or security.token (for clients)")
    if not security.member_secret:
        missing.append("security.member_secret (for members)")
    return missing


def _check_http(settings: Settings) -> None:
    http = settings.http
    if http.token and settings.clients_authenticate:
        others = "users are" if settings.users else "credentials in [security] are"
        raise ConfigError(
            f"http.token is not allowed, because {others} set: these are asked for at the HTTP door, too. Give a user "
            "a token instead"
        )
    if not http.enabled or is_loopback(http.host) or settings.security.allow_insecure_bind:
        return
    lacks = []
    if not settings.tls.enabled:
        lacks.append("tls.certificate, tls.key and tls.ca (for TLS)")
    if not (settings.clients_authenticate or http.token or settings.tls.client_certificates == "required"):
        lacks.append("users, http.token, or the credentials of [security]")
    if lacks:
        raise ConfigError(
            f"http.host = {http.host!r} is not allowed without TLS and credentials, for others could read and change "
            f"what they like. Set {'; and '.join(lacks)}; or listen on 127.0.0.1. In a network where nobody else is, "
            "security.allow_insecure_bind = true does without"
        )


def _check_tls(settings: Settings) -> None:
    tls = settings.tls
    if tls.enabled and not tls.ca:
        raise ConfigError(
            "tls.ca must be set too, because tls.certificate is: the authorities by which members trust each other"
        )
    if not tls.enabled:
        for field in ("key", "member_certificate", "member_key", "ca", "client_ca"):
            if getattr(tls, field):
                raise ConfigError(f"tls.certificate must be set too, because tls.{field} is: it turns TLS on")
        if tls.client_certificates != "none":
            raise ConfigError(
                f"tls.client_certificates = {tls.client_certificates!r} is not allowed without tls.certificate"
            )
    if tls.member_key and not tls.member_certificate:
        raise ConfigError("tls.member_certificate must be set too, because tls.member_key is")


def _check_journal(settings: Settings) -> None:
    journalled = [name for name, entry in settings.maps.items() if entry.journal != "off"]
    if journalled and not settings.persistence.directory and not settings.member.lite:
        name = journalled[0]
        raise ConfigError(
            f"persistence.directory must be set, because maps.{name}.journal is {settings.maps[name].journal!r}: "
            "a directory of this member alone"
        )


def _check_zones(settings: Settings) -> None:
    """What a map in a zone cannot have, by name."""
    for name, entry in settings.maps.items():
        if entry.reads == "local" and not entry.zone:
            raise ConfigError(f"maps.{name}.reads = 'local' is not allowed: only a map in a zone is read so")
        if not entry.zone:
            continue
        if not settings.metastore.voters:
            raise ConfigError(f"metastore.voters must be set, because maps.{name}.zone is {entry.zone!r}")
        unfit = {
            "max_idle_ms": (entry.max_idle_ms, "only the leader knows of uses"),
            "journal": (entry.journal != "off", "the members' files keep its groups wherever they have some"),
            "read_backups": (entry.read_backups, "use reads = 'local'"),
            "reads": (entry.reads == "confirmed", "a majority confirms every read there"),
            "changes_bytes": (entry.changes_bytes, "it has no change stream"),
            "loss_policy": (entry.loss_policy != "ignore", "without a majority it waits, and is never lost"),
        }
        for key, (is_set, why) in unfit.items():
            if is_set:
                raise ConfigError(f"maps.{name}.{key} is not allowed for a map in a zone: {why}")


def _check_frames(settings: Settings) -> None:
    limits = settings.limits
    least = limits.key_bytes + limits.value_bytes + FRAME_OVERHEAD_BYTES
    if limits.frame_bytes < least:
        raise ConfigError(
            f"limits.frame_bytes = {limits.frame_bytes} is not allowed: one entry of limits.key_bytes and "
            f"limits.value_bytes needs {least}"
        )


CHECKS: Final[tuple[Callable[[Settings], None], ...]] = (
    _check_journal,
    _check_attributes,
    _check_copies,
    _check_changes,
    _check_reads,
    _check_zones,
    _check_suspicion,
    _check_addresses,
    check_users,
    _check_credentials,
    _check_tls,
    _check_http,
    _check_frames,
)
"""What must hold between keys; each raises a ConfigError that names them."""
