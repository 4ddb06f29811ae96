"""Loads checked settings from a TOML text, the environment and flags."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import msgspec

from holdfast.config.addresses import is_loopback, parse_address
from holdfast.config.describe import Key, keys_of, schema
from holdfast.config.engine_features import FEATURES
from holdfast.config.local_paths import uri_reason
from holdfast.config.processor_settings import FUNCTION
from holdfast.config.schema import (
    BACKUPS_MAX,
    COLLECTION_SECTIONS,
    DEFAULT_MAP,
    INHERITED,
    INTERNAL,
    NAMED,
    OWN_ATTRIBUTES,
    PREFIX,
    SECTIONS,
    MapSettings,
    Settings,
    StructureSettings,
)
from holdfast.config.sharing import key_of_encoded
from holdfast.config.units import WrongUnit
from holdfast.config.users import check_users
from holdfast.errors import ConfigError

FRAME_OVERHEAD_BYTES: Final = 65_536
"""Room in a frame beside one key and one value: names, headers, expiry."""
CHANGES_BYTES_LEAST: Final = 16_384
"""Less than this holds only some dozens of changes."""
NAME_MAX: Final = 250
MILLISECONDS: Final = "_ms"
"""End of the name of a key whose unit that is."""
_PLAIN: Final = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
"""A number without a unit."""


def load(
    text: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    origin: str = "the configuration",
    overrides_from: str = "the command line",
) -> Settings:
    """Settings from a TOML text, the environment and flags; the later source wins, key by key.

    `overrides` has dotted keys (`member.client_port`); None counts as absent, and a text is parsed as in the
    environment. `origin` names the TOML text in messages, `overrides_from` the source of the overrides. Raises
    one ConfigError that lists everything that is unknown, of a wrong type, out of bounds, or in conflict with
    another key.
    """
    mistakes = _Mistakes()
    values = _values(text, environ or {}, overrides or {}, origin, overrides_from, mistakes)
    settings = _settings(values)
    mistakes.look_at(settings)
    mistakes.tell()
    return settings


def changed(settings: Settings, given: Mapping[str, str]) -> Settings:
    """These settings with changes that are allowed while a member runs; `given` has texts as in the environment.

    Raises one ConfigError that lists all mistakes, including keys that are only read at the start of a member.
    """
    mistakes = _Mistakes()
    tables: dict[str, dict[str, Any]] = {}
    for dotted, text in given.items():
        with mistakes.noting(dotted):
            key = find_live_key(dotted, "the new settings")
            value = _convert(key, _spread(key, text, dotted), "the new settings", strict=False)
            tables.setdefault(key.section, {})[key.name] = value
    sections = {
        section: msgspec.structs.replace(getattr(settings, section), **values)
        for section, values in tables.items()
    }
    found = msgspec.structs.replace(settings, **sections, given=settings.given | given.keys())
    mistakes.look_at(found)
    mistakes.tell()
    return found


def map_values(name: str, given: Mapping[str, str]) -> dict[str, int]:
    """The settings of an order to change this map while it is used (`holdfast map set`): `backups=2`, `ttl=1h`.

    Raises one ConfigError that lists all mistakes.
    """
    mistakes = _Mistakes()
    values: dict[str, int] = {}
    for field, text in given.items():
        with mistakes.noting():
            key = _find_key_in_use(name, field)
            values[key.name] = int(str(_convert(key, text, "the new settings", strict=False)))
    mistakes.tell()
    return values


def check_map(settings: Settings, name: str, values: Mapping[str, int]) -> None:
    """Raise one ConfigError that lists all conflicts if a map with these settings cannot get these values in use."""
    if name.startswith(INTERNAL):
        raise ConfigError(f"{name} is a map of Holdfast's own: its settings follow those of the other maps")
    chosen = settings.map(name)
    if chosen.raft_zone:
        raise ConfigError(
            f"map {name} is in the zone {chosen.raft_zone!r}: its settings are read when a member starts, and its "
            "number of replicas is that of the zone (holdfast zone alter)"
        )
    mistakes = _Mistakes()
    for field, value in values.items():
        dotted = f"maps.{name}.{field}"
        with mistakes.noting(dotted):
            _convert(_find_key_in_use(name, field), value, "the new settings", strict=True)
    maps = {**settings.maps, name: msgspec.structs.replace(chosen, **values)}
    mistakes.look_at(msgspec.structs.replace(settings, maps=maps))
    mistakes.tell()


def move_problem(settings: Settings, name: str, zone: str) -> str:
    """The reason why a map with these settings cannot move into this zone, or, if it is empty, out of zones; empty:
    it can. Settings that have no effect in a zone are kept for when it moves out again.
    """
    if name.startswith(INTERNAL):
        return f"{name} is a map of Holdfast's own, and stays where it is"
    if name == DEFAULT_MAP:
        return "name a map: the settings of `default` apply to many"
    chosen = settings.map(name)
    if chosen.raft_zone == zone:
        return f"{name} lives in zone {zone!r} already" if zone else f"{name} lives in no zone"
    if not zone:
        local = "maps.{}.reads = 'local' is only for a map in a zone: change it on all members first"
        return local.format(name) if chosen.reads == "local" else ""
    for feature in FEATURES:
        if (
            feature.setting
            and not feature.ignored
            and getattr(chosen, feature.setting) not in feature.allowed
        ):
            return f"maps.{name}.{feature.setting} is not allowed for a map in a zone: {feature.instead}"
    return ""


def _find_key_in_use(map_name: str, name: str) -> Key:
    """The key of a map with this name, with or without its unit."""
    known = MapSettings.__struct_fields__
    name = name + MILLISECONDS if name + MILLISECONDS in known else name
    key = find_key(f"maps.{map_name}.{name}", "the new settings")
    if not key.in_use:
        changeable = ", ".join(each.name for each in keys_of("maps", MapSettings) if each.in_use)
        raise ConfigError(
            f"{key.dotted} cannot be changed while the map is used: stop the cluster (holdfast cluster shutdown), "
            "change it in the files of all members, and start them again. These can be changed in use: "
            f"{changeable}"
        )
    return key


def find_live_key(dotted: str, origin: str) -> Key:
    """The key with this dotted name. Raises ConfigError if there is none, or if it is only read at the start."""
    key = find_key(dotted, origin)
    if not key.live:
        live = ", ".join(each.dotted for each in schema() if each.live)
        raise ConfigError(
            f"{dotted} is read when a member starts: change it in its file, and restart the members one after the "
            f"other. These can be changed at run time: {live}"
        )
    return key


def live_text(dotted: str, text: str, origin: str) -> str:
    """A value for a setting that can change at run time, without its unit: an older member knows none.

    Raises ConfigError for a wrong unit, and if there is no such setting.
    """
    key = find_live_key(dotted, origin)
    return str(_convert(key, text, origin, strict=False)) if key.unit else text


class _Mistakes:
    def __init__(self) -> None:
        self._found: list[str] = []
        self._wrong: set[str] = set()
        """Keys whose values were dropped because they are wrong."""

    @contextmanager
    def noting(self, dotted: str = "") -> Iterator[None]:
        """Collect a ConfigError of the block and continue after it. `dotted`: the key that the block reads."""
        try:
            yield
        except ConfigError as mistake:
            self._found.append(str(mistake))
            if dotted:
                self._wrong.add(dotted)

    def look_at(self, settings: Settings) -> None:
        """Collect conflicts between keys. Those that mention a dropped key are skipped: its default would mislead."""
        for check in CHECKS:
            self._found += [
                found
                for found in check(settings)
                if found not in self._found and not any(dotted in found for dotted in self._wrong)
            ]

    def tell(self) -> None:
        """Raises ConfigError if there are mistakes: a single one as it is, several with one line each."""
        if len(self._found) == 1:
            raise ConfigError(self._found[0])
        if self._found:
            lines = "".join(f"\n  {found}" for found in self._found)
            raise ConfigError(f"{len(self._found)} settings are wrong:{lines}")


def _values(
    text: str | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object],
    origin: str,
    overrides_from: str,
    mistakes: _Mistakes,
) -> dict[str, Any]:
    """Given values by dotted key; the later source wins. Mistakes are collected, and their keys left out."""
    values: dict[str, Any] = {}
    for dotted, value in _from_text(text, origin, mistakes):
        with mistakes.noting(dotted):
            values[dotted] = _convert(find_key(dotted, origin), value, origin, strict=True)
    for variable, raw in sorted(environ.items()):
        with mistakes.noting():
            found = _key_of(variable, values)
            if found is not None:
                with mistakes.noting(found.dotted):
                    spread = _spread(found, raw, variable)
                    values[found.dotted] = _convert(found, spread, variable, strict=False)
    for dotted, value in overrides.items():
        if value is None:
            continue
        with mistakes.noting(dotted):
            key = find_key(dotted, overrides_from)
            if isinstance(value, str):
                values[dotted] = _convert(key, _spread(key, value, dotted), overrides_from, strict=False)
            else:
                given = list(value) if isinstance(value, tuple) else value
                values[dotted] = _convert(key, given, overrides_from, strict=True)
    return values


def _settings(values: Mapping[str, Any]) -> Settings:
    tables = {
        section: table(
            **{key.name: values[key.dotted] for key in keys_of(section, table) if key.dotted in values}
        )
        for section, table in SECTIONS.items()
    }
    maps = _maps(values)
    named: dict[str, Any] = {
        kind: (
            _collections(kind, values, maps[DEFAULT_MAP])
            if kind in COLLECTION_SECTIONS
            else {name: table(**own) for name, own in _tables(kind, values).items()}
        )
        for kind, table in NAMED.items()
        if kind != "maps"
    }
    return Settings(**tables, **named, maps=maps, given=frozenset(values))  # type: ignore[arg-type]


def _from_text(text: str | None, origin: str, mistakes: _Mistakes) -> Iterator[tuple[str, object]]:
    """Keys of a TOML text with their raw values. Invalid sections are collected as mistakes and skipped."""
    try:
        document = tomllib.loads(text or "")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} is not valid TOML: {error}") from None
    for section, content in document.items():
        tables: dict[str, Any] = {}
        with mistakes.noting():
            tables = _tables_of(section, content, origin)
        for name, table in tables.items():
            for key, value in table.items():
                yield f"{section}.{name}.{key}" if section in NAMED else f"{section}.{key}", value


def _tables_of(section: str, content: Any, origin: str) -> dict[str, Any]:
    if section not in SECTIONS and section not in NAMED:
        raise ConfigError(f"{origin}: unknown section [{section}]{_meant(section, [*SECTIONS, *NAMED])}")
    tables = content if section in NAMED else {section: content}
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(
            f"{origin}: {section} must be a section: write [{section}{'.NAME' * (section in NAMED)}]"
        )
    _check_somebody(section, tables, origin)
    return tables


def _check_somebody(section: str, tables: Mapping[str, object], origin: str) -> None:
    """Raises ConfigError for an empty section of users or roles: without users everyone would be admitted."""
    if section in ("users", "roles") and not (tables and all(tables.values())):
        empty = next((f"{section}.{name}" for name, table in tables.items() if not table), section)
        raise ConfigError(f"{origin}: [{empty}] has nothing in it: fill it, or take it out")


@cache
def _variables() -> dict[str, Key]:
    """Keys with a fixed environment variable, by its name."""
    return {key.variable: key for section, table in SECTIONS.items() for key in keys_of(section, table)}


def _key_of(variable: str, values: Mapping[str, object]) -> Key | None:
    """The key that an environment variable sets; None if the variable is not for Holdfast. Raises ConfigError.

    Other variables with the same prefix are ignored (container platforms set e.g. HOLDFAST_SERVICE_HOST),
    unless their second word is a section or similar to one: then it is probably a mistake.
    """
    if not variable.startswith(PREFIX):
        return None
    words = [section.upper() for section in (*SECTIONS, *NAMED)]
    section, _, rest = variable.removeprefix(PREFIX).partition("_")
    if section.lower() in NAMED and section.isupper():
        return _named_key(section.lower(), variable, rest, values)
    if variable in _variables():
        return _variables()[variable]
    if rest and difflib.get_close_matches(section, words, n=1, cutoff=0.75):
        raise ConfigError(
            f"the environment: unknown variable {variable}{_meant(variable, list(_variables()))}"
        )
    return None


def _named_key(kind: str, variable: str, rest: str, values: Mapping[str, object]) -> Key:
    """The key that `HOLDFAST_MAPS_<rest>` sets. It is found at the end, since names of maps may contain underscores."""
    fields = sorted(NAMED[kind].__struct_fields__, key=len, reverse=True)
    for field in fields:
        name = rest.removesuffix(f"_{field.upper()}")
        if name not in {rest, ""}:
            return find_key(f"{kind}.{_name_meant(kind, name, values)}.{field}", "the environment")
    raise ConfigError(
        f"the environment: {variable} must be {PREFIX}{kind.upper()}_<NAME>_<KEY> with one of the keys "
        f"{', '.join(sorted(field.upper() for field in fields))}"
    )


def _name_meant(kind: str, name: str, values: Mapping[str, object]) -> str:
    """The table name that a variable means, since variables are often written in upper case only.

    An upper-case name that is defined nowhere means the one defined name that differs from it only in case.
    """
    if kind in ("maps", *COLLECTION_SECTIONS) and name == DEFAULT_MAP.upper():
        return DEFAULT_MAP
    given = _tables(kind, values)
    alike = [other for other in given if other.upper() == name]
    return alike[0] if name.isupper() and name not in given and len(alike) == 1 else name


def find_key(dotted: str, origin: str) -> Key:
    """The key with this dotted name. Raises ConfigError, which suggests the nearest known one."""
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
    name = key_of_encoded(dotted).rpartition(".")[2]
    raise ConfigError(f"{origin}: unknown key {dotted}{_meant(name, names)}")


def _meant(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _spread(key: Key, raw: str, variable: str) -> object:
    """Text of an environment variable in the shape of its key: `a,b` for a list, `a=1,b=2` for a table."""
    if isinstance(key.default, list):
        return [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(key.default, dict):
        pairs = [part.partition("=") for part in raw.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise ConfigError(f"{variable} = {raw!r} is not allowed: give NAME=VALUE, separated by commas")
        return {name.strip(): value.strip() for name, _, value in pairs}
    return raw.strip().lower() if isinstance(key.default, bool) else raw


def _convert(key: Key, value: object, origin: str, *, strict: bool) -> object:
    """The value in the key's type. Raises ConfigError, which names key, value and allowed values."""
    if key.unit and isinstance(value, str) and not _PLAIN.fullmatch(value):
        try:
            value = key.unit.parse(value)
        except WrongUnit as wrong:
            raise ConfigError(f"{origin}: {key.dotted} = {value!r} is not allowed: {wrong}") from None
    try:
        return msgspec.convert(value, key.type, strict=strict)
    except msgspec.ValidationError:
        shown = "***" if key.secret else repr(value)
        raise ConfigError(
            f"{origin}: {key.dotted} = {shown} is not allowed: it must be {key.allowed}"
        ) from None


def _tables(kind: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    chosen: dict[str, dict[str, Any]] = {}
    for dotted, value in values.items():
        if dotted.startswith(f"{kind}."):
            name, _, field = dotted.removeprefix(f"{kind}.").rpartition(".")
            chosen.setdefault(name, {})[field] = value
    return chosen


def _maps(values: Mapping[str, Any]) -> dict[str, MapSettings]:
    chosen = {DEFAULT_MAP: {}, **_tables("maps", values)}
    return {name: MapSettings(**{**chosen[DEFAULT_MAP], **own}) for name, own in chosen.items()}


def _collections(kind: str, values: Mapping[str, Any], usual: MapSettings) -> dict[str, Any]:
    """Structures of one kind. Keys that are not set are those of `default` of the kind, else those of maps."""
    chosen = _tables(kind, values)
    inherited = {key: getattr(usual, key) for key in INHERITED if key in NAMED[kind].__struct_fields__}
    inherited |= chosen.get(DEFAULT_MAP, {})
    return {name: NAMED[kind](**{**inherited, **own}) for name, own in chosen.items()}


# -- checks between keys -------------------------------------------------------------------------------------


HOST_MAX = 253


def _kept(settings: Settings) -> Iterator[tuple[str, MapSettings | StructureSettings]]:
    """Maps and collections, with the names of their sections."""
    for section in ("maps", *COLLECTION_SECTIONS):
        for name, entry in getattr(settings, section).items():
            yield f"{section}.{name}", entry


def _check_copies(settings: Settings) -> Iterator[str]:
    for section, entry in _kept(settings):
        if entry.backups + entry.async_backups > BACKUPS_MAX:
            yield (
                f"{section}.backups = {entry.backups} and {section}.async_backups = {entry.async_backups} are "
                f"{entry.backups + entry.async_backups} together: at most {BACKUPS_MAX} are allowed"
            )


def _check_attributes(settings: Settings) -> Iterator[str]:
    for name, value in settings.member.attributes.items():
        if name in OWN_ATTRIBUTES:
            yield f"member.attributes.{name} is not allowed: every member has an attribute {name!r} by itself"
        elif not re.fullmatch(r"[^\s=|,]{1,256}", name):
            yield (
                f"member.attributes: {name!r} is no name of an attribute: 1 to 256 characters without space, '=', '|' "
                "and ','"
            )
        elif not value or value != value.strip() or "|" in value or "," in value:
            yield (
                f"member.attributes.{name} = {value!r} is not allowed: it is not empty, has no '|' and no ',', and no "
                "space at its ends, so that a filter can name it"
            )


def _check_reads(settings: Settings) -> Iterator[str]:
    for name, entry in settings.maps.items():
        if entry.reads == "confirmed" and entry.read_backups:
            yield (
                f"maps.{name}.reads = 'confirmed' and maps.{name}.read_backups = true contradict each other: a "
                "backup may answer with an older value. Set one of them"
            )


def _check_changes(settings: Settings) -> Iterator[str]:
    for name, entry in settings.maps.items():
        if 0 < entry.changes_bytes < CHANGES_BYTES_LEAST:
            yield (
                f"maps.{name}.changes_bytes = {entry.changes_bytes} is not allowed: a reader would be behind at once. "
                f"It must be 0, for no change stream, or at least {CHANGES_BYTES_LEAST}"
            )


def _check_eviction(settings: Settings) -> Iterator[str]:
    for name, entry in settings.maps.items():
        limits = [key for key in ("max_size", "max_bytes") if getattr(entry, key)]
        if entry.evicts and name.startswith(INTERNAL):
            yield f"maps.{name}.eviction = '{entry.eviction}' is not allowed: Holdfast needs what its own maps hold"
        elif entry.evicts and not limits:
            yield (
                f"maps.{name}.eviction = '{entry.eviction}' is not allowed without a limit: set "
                f"maps.{name}.max_size or maps.{name}.max_bytes"
            )
        elif limits and not entry.evicts:
            yield (
                f"maps.{name}.{limits[0]} = {getattr(entry, limits[0])} is not allowed without eviction: set "
                f"maps.{name}.eviction to 'lru' or 'random'"
            )


def _check_suspicion(settings: Settings) -> Iterator[str]:
    cluster = settings.cluster
    if cluster.suspect_after_ms < 2 * cluster.heartbeat_ms:
        yield (
            f"cluster.suspect_after_ms = {cluster.suspect_after_ms} is not allowed: it must be at least twice "
            f"cluster.heartbeat_ms, which is {cluster.heartbeat_ms}"
        )


def _check_addresses(settings: Settings) -> Iterator[str]:
    for server in settings.cluster.dns_servers:
        try:
            parse_address(server, "cluster.dns_servers")
        except ConfigError as wrong:
            yield str(wrong)
    member = settings.member
    for seed in settings.cluster.seeds:
        alone = msgspec.structs.replace(settings.cluster, seeds=[seed])
        try:
            msgspec.structs.replace(settings, cluster=alone).seed_addresses()
        except ConfigError as wrong:
            yield str(wrong)
    if member.member_port == member.client_port != 0:
        yield (f"member.client_port = {member.client_port} is not allowed: member.member_port is the same")
    public = member.public_host
    if len(public) > HOST_MAX or not public.isprintable() or " " in public:
        yield (
            f"member.public_host = {public!r} is no host: a name or address of at most {HOST_MAX} characters"
        )
    kind = settings.partitions.group_by
    places = {"rack": ("rack", member.rack), "zone": ("availability_zone", member.availability_zone)}
    if kind in places and not (places[kind][1] or member.group or member.lite):
        yield (f"member.{places[kind][0]} must be set, because partitions.group_by is {kind!r}")


def _check_credentials(settings: Settings) -> Iterator[str]:
    security, host = settings.security, settings.member.host
    if bool(security.username) != bool(security.password):
        other = "password" if security.username else "username"
        yield (f"security.{other} must be set too: username and password go together")
    if security.second_member_secret and not security.member_secret:
        yield ("security.member_secret must be set too, because security.second_member_secret is")
    if is_loopback(host) or security.allow_insecure_bind:
        return
    lacks = missing_for_open_address(settings)
    if lacks:
        yield (
            f"member.host = {host!r} is not allowed without TLS and credentials, because anyone could read and change "
            f"everything. Set {'; and '.join(lacks)}; or listen on 127.0.0.1. In a network of your own, "
            "security.allow_insecure_bind = true allows it"
        )


def missing_for_open_address(settings: Settings) -> list[str]:
    """Settings that must be made before others may reach this member over a network."""
    security, tls = settings.security, settings.tls
    missing: list[str] = []
    if not tls.enabled:
        missing.append("tls.certificate, tls.key and tls.ca (for TLS)")
    if not (settings.clients_authenticate or tls.client_certificates == "required"):
        missing.append("users, or security.username and security.password, or security.token (for clients)")
    if not security.member_secret:
        missing.append("security.member_secret (for members)")
    return missing


def _check_http(settings: Settings) -> Iterator[str]:
    http = settings.http
    if http.token and settings.clients_authenticate:
        others = "users are" if settings.users else "credentials in [security] are"
        yield (
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
        yield (
            f"http.host = {http.host!r} is not allowed without TLS and credentials, because anyone could read and "
            f"change data. Set {'; and '.join(lacks)}; or listen on 127.0.0.1. In a network of your own, "
            "security.allow_insecure_bind = true allows it"
        )


def _check_tls(settings: Settings) -> Iterator[str]:
    tls = settings.tls
    if tls.enabled and not tls.ca:
        yield (
            "tls.ca must be set too, because tls.certificate is: the authorities by which members trust each other"
        )
    if not tls.enabled:
        for field in ("key", "member_certificate", "member_key", "ca", "client_ca"):
            if getattr(tls, field):
                yield (f"tls.certificate must be set too, because tls.{field} is: it turns TLS on")
        if tls.client_certificates != "none":
            yield (
                f"tls.client_certificates = {tls.client_certificates!r} is not allowed without tls.certificate"
            )
    if tls.member_key and not tls.member_certificate:
        yield ("tls.member_certificate must be set too, because tls.member_key is")


def _check_paths(settings: Settings) -> Iterator[str]:
    for name, path in (
        ("persistence.directory", settings.persistence.directory),
        ("security.audit_file", settings.security.audit_file),
    ):
        reason = uri_reason(path)
        if reason:
            yield f"{name}: {reason}"


def _check_journal(settings: Settings) -> Iterator[str]:
    journalled = [(section, entry.journal) for section, entry in _kept(settings) if entry.journal != "off"]
    if journalled and not settings.persistence.directory and not settings.member.lite:
        section, journal = journalled[0]
        yield (
            f"persistence.directory must be set, because {section}.journal is {journal!r}: "
            "a directory of this member alone"
        )


def _check_zones(settings: Settings) -> Iterator[str]:
    """Settings that a map in a zone cannot have."""
    for name, entry in settings.maps.items():
        if entry.reads == "local" and not entry.raft_zone:
            yield (f"maps.{name}.reads = 'local' is not allowed: only a map in a zone is read so")
        if not entry.raft_zone:
            continue
        for feature in FEATURES:
            if not feature.setting or (value := getattr(entry, feature.setting)) in feature.allowed:
                continue
            way_out = ""
            if value == getattr(settings.map("default"), feature.setting):
                allowed = msgspec.json.encode(feature.allowed[0]).decode()
                way_out = f". maps.default has it: set maps.{name}.{feature.setting} = {allowed}"
            yield (
                f"maps.{name}.{feature.setting} is not allowed for a map in a zone: {feature.instead}{way_out}"
            )


def _check_frames(settings: Settings) -> Iterator[str]:
    limits = settings.limits
    least = limits.key_bytes + limits.value_bytes + FRAME_OVERHEAD_BYTES
    if limits.frame_bytes < least:
        yield (
            f"limits.frame_bytes = {limits.frame_bytes} is not allowed: one entry of limits.key_bytes and "
            f"limits.value_bytes needs {least}"
        )


def _check_processors(settings: Settings) -> Iterator[str]:
    known: dict[tuple[int, int], str] = {}
    most_ms = settings.limits.call_timeout_ms // 2
    for name, entry in settings.processors.items():
        if entry.function and not FUNCTION.fullmatch(entry.function):
            yield (
                f"processors.{name}.function = {entry.function!r} is not allowed: write MODULE:FUNCTION, such as "
                "'shop.processors:sell'"
            )
        if entry.time_limit_ms > most_ms:
            yield (
                f"processors.{name}.time_limit_ms = {entry.time_limit_ms} is not allowed: it is at most half of "
                f"limits.call_timeout_ms, {most_ms}"
            )
        if (identity := entry.identity) is None:
            continue
        if identity in known:
            yield (
                f"processors.{name}.factory_id and class_id are those of processors.{known[identity]}: clients could "
                "not tell them apart"
            )
        known[identity] = name


CHECKS: Final[tuple[Callable[[Settings], Iterator[str]], ...]] = (
    _check_paths,
    _check_journal,
    _check_attributes,
    _check_copies,
    _check_changes,
    _check_eviction,
    _check_reads,
    _check_zones,
    _check_suspicion,
    _check_addresses,
    check_users,
    _check_credentials,
    _check_tls,
    _check_http,
    _check_frames,
    _check_processors,
)
"""Checks between keys; each yields one message for each conflict, naming the keys."""
