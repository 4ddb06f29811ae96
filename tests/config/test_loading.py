"""Settings: three sources, one schema, and messages that say what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import BACKUPS_MAX, MapSettings, Settings, disagreement, is_loopback, load, parse_address
from holdfast.config.describe import schema
from holdfast.config.loading import changed
from holdfast.config.permissions import ACTIONS, Action, Kind, read_rule
from holdfast.config.schema import COLLECTION_SECTIONS
from holdfast.config.users import users_of
from holdfast.config.verifiers import (
    COST,
    PasswordVerifier,
    TokenVerifier,
    password_verifier,
    read_verifier,
    token_verifier,
)
from holdfast.errors import ConfigError
from holdfast.runtime.live_settings import APPLIERS


def test_defaults_are_those_of_the_documentation() -> None:
    settings = load()
    assert settings.partitions.count == 271
    assert settings.map("anything") == MapSettings(backups=1, async_backups=0, ttl_ms=0, max_idle_ms=0)
    assert (settings.member.client_port, settings.member.member_port) == (5701, 5751)
    assert settings.member.host == "127.0.0.1"
    assert not settings.given


def test_every_key_has_a_meaning_a_variable_and_a_default_that_it_allows() -> None:
    keys = schema()
    assert len({key.variable for key in keys}) == len(keys)
    for key in keys:
        assert key.meaning.endswith("."), key.dotted
        load(overrides={key.dotted: key.default})


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    text = '[member]\nname = "file"\navailability_zone = "file"\ngroup = "file"'
    environ = {"HOLDFAST_MEMBER_AVAILABILITY_ZONE": "environment", "HOLDFAST_MEMBER_GROUP": "environment"}
    settings = load(text, environ, {"member.group": "flag", "member.name": None})
    assert (settings.member.name, settings.member.availability_zone, settings.member.group) == (
        "file",
        "environment",
        "flag",
    )


def test_the_environment_is_text_in_the_shape_of_its_key() -> None:
    settings = load(
        environ={
            "HOLDFAST_CLUSTER_SEEDS": "a:1, b:2",
            "HOLDFAST_MEMBER_LITE": "True",
            "HOLDFAST_MEMBER_CLIENT_PORT": "6000",
            "HOLDFAST_MEMBER_ATTRIBUTES": "rack=r1,disk=ssd",
            "HOLDFAST_MAPS_DEFAULT_BACKUPS": "2",
            "HOLDFAST_MAPS_my_map_ASYNC_BACKUPS": "3",
        }
    )
    assert settings.seed_addresses() == [("a", 1), ("b", 2)]
    assert settings.member.lite is True
    assert settings.member.client_port == 6000
    assert settings.member.attributes == {"rack": "r1", "disk": "ssd"}
    assert settings.map("my_map") == MapSettings(backups=2, async_backups=3)
    assert settings.map("other").backups == 2


def test_variables_that_only_begin_alike_are_left_alone() -> None:
    environ = {"HOLDFAST_SERVICE_HOST": "10.0.0.1", "HOLDFAST_PORT_5701_TCP": "x", "PATH": "/bin"}
    assert load(environ=environ) == load()


def test_a_map_takes_what_it_does_not_set_from_default() -> None:
    settings = load("[maps.default]\nbackups = 2\nttl_ms = 5\n[maps.flights]\nttl_ms = 0\n")
    assert settings.map("flights") == MapSettings(backups=2, ttl_ms=0)
    assert settings.map("flights").copies == 3
    assert settings.replica_backups() == 2


def test_what_was_given_is_known() -> None:
    settings = load("[member]\nclient_port = 5701")
    assert settings.is_given("member.client_port")
    assert not settings.is_given("member.member_port")


WRONG = {
    "[clster]": "unknown section [clster]; did you mean cluster?",
    "[cluster]\nnmae = 'x'": "unknown key cluster.nmae; did you mean name?",
    "[cluster]\nqqqq = 1": "known are name, seeds, bootstrap",
    "cluster = 3": "cluster must be a section: write [cluster]",
    "[maps]\nbackups = 1": "maps must be a section: write [maps.NAME]",
    "[maps.x]\nbackup = 1": "unknown key maps.x.backup; did you mean backups?",
    "[maps.x]\nbackups = 7": "maps.x.backups = 7 is not allowed: it must be a whole number from 0 to 6",
    "[maps.x]\nbackups = 4\nasync_backups = 3": "maps.x.async_backups = 3 are 7 together: at most 6",
    "[maps.x]\nchanges_bytes = 5000": "maps.x.changes_bytes = 5000 is not allowed: a reader would be behind at once",
    "[maps.x]\nloss_policy = 'safe'": "maps.x.loss_policy = 'safe' is not allowed: it must be",
    "[metastore]\nvoters = 1\n[maps.x]\nraft_zone = 'z'\nloss_policy = 'read-only-safe'": "maps.x.loss_policy is not",
    "[maps.x]\nreads = 'confirmed'\nread_backups = true": "maps.x.reads = 'confirmed' and maps.x.read_backups = true",
    "[member]\npublic_host = 'two words'": "member.public_host = 'two words' is no host",
    "[member.attributes]\nname = 'x'": "member.attributes.name is not allowed: every member has",
    "[member.attributes]\n'a b' = 'x'": "'a b' is no name of an attribute",
    "[member.attributes]\ndisk = 'ssd|nvme'": "member.attributes.disk = 'ssd|nvme' is not allowed",
    "[member.attributes]\ndisk = ''": "member.attributes.disk = '' is not allowed",
    "[member.attributes]\ndisk = 1": "member.attributes = {'disk': 1} is not allowed",
    "[maps.x]\neviction = 'lru'": "maps.x.eviction = 'lru' is not allowed without a limit: set maps.x.max_size or",
    "[maps.x]\nmax_size = 5": "maps.x.max_size = 5 is not allowed without eviction: set maps.x.eviction to 'lru'",
    "[maps.x]\nmax_bytes = 5": "maps.x.max_bytes = 5 is not allowed without eviction",
    "[maps.x]\neviction = 'fifo'\nmax_size = 5": "maps.x.eviction = 'fifo' is not allowed: it must be",
    "[maps.x]\nchanges_bytes = -1": "maps.x.changes_bytes = -1 is not allowed",
    "[maps.x]\nbackups = true": "maps.x.backups = True is not allowed",
    "[maps.x]\nbackups = '1'": "maps.x.backups = '1' is not allowed",
    "[maps.'']\nbackups = 1": "the name of a map has 1 to 250 characters",
    "[cluster]\nquorum = 'some'": "cluster.quorum = 'some' is not allowed: it must be 'any' or 'majority'",
    "[cluster]\nheartbeat_ms = 6000": "cluster.suspect_after_ms = 10000 is not allowed: it must be at least twice",
    "[cluster]\nseeds = ['host']": "cluster.seeds = 'host' is not allowed: it must be HOST:PORT",
    "[partitions]\ncount = 0": "partitions.count = 0 is not allowed: it must be a whole number from 1 to 65536",
    "[partitions]\ngroup_by = 'rack'": "member.rack must be set, because partitions.group_by is 'rack'",
    "[partitions]\ngroup_by = 'zone'": "member.availability_zone must be set, because partitions.group_by is 'zone'",
    "[member]\nlite = 'yes'": "member.lite = 'yes' is not allowed: it must be true or false",
    "[member]\nclient_port = 5751": "member.client_port = 5751 is not allowed: member.member_port is the same",
    "[security]\nusername = 'u'": "security.password must be set too",
    "[security]\npassword = 'p'": "security.username must be set too",
    "[limits]\nframe_bytes = 65536": "limits.frame_bytes = 65536 is not allowed: one entry of limits.key_bytes",
    "[cluster": "the configuration is not valid TOML",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_in_the_file_is_named_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(WRONG[text])):
        load(text)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("HOLDFAST_CLUSTR_NAME", "x", "did you mean HOLDFAST_CLUSTER_NAME?"),
        ("HOLDFAST_MEMBER_CLIENT_PROT", "1", "did you mean HOLDFAST_MEMBER_CLIENT_PORT?"),
        (
            "HOLDFAST_MEMBER_LITE",
            "perhaps",
            "member.lite = 'perhaps' is not allowed: it must be true or false",
        ),
        ("HOLDFAST_MAPS_BACKUPS", "1", "must be HOLDFAST_MAPS_<NAME>_<KEY>"),
        ("HOLDFAST_MEMBER_ATTRIBUTES", "rack", "give NAME=VALUE, separated by commas"),
    ],
)
def test_a_mistake_in_the_environment_is_named(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(environ={variable: value})


def test_all_mistakes_are_told_at_once_whatever_they_are_and_wherever_they_stand() -> None:
    text = """
[member]
nmae = "x"
client_port = 99999
[clutser]
name = "x"
[cluster]
seeds = ["a:1", "b"]
heartbeat_ms = 9000
suspect_after_ms = "soon"
[maps.orders]
reads = "local"
backups = 4
async_backups = 5
"""
    with pytest.raises(ConfigError) as told:
        load(text, {"HOLDFAST_MAPS_x_BACKUPS": "9"}, {"membr.host": "x"}, origin="h.toml")
    first, *lines = str(told.value).splitlines()
    assert first == "9 settings are wrong:"
    for line, expected in zip(
        lines,
        (
            "h.toml: unknown key member.nmae; did you mean name?",
            "h.toml: member.client_port = 99999 is not allowed",
            "h.toml: unknown section [clutser]; did you mean cluster?",
            "h.toml: cluster.suspect_after_ms = 'soon' is not allowed",
            "HOLDFAST_MAPS_x_BACKUPS: maps.x.backups = '9' is not allowed",
            "the command line: unknown key membr.host",
            "maps.orders.backups = 4 and maps.orders.async_backups = 5 are 9 together",
            "maps.orders.reads = 'local' is not allowed",
            "cluster.seeds = 'b' is not allowed",
        ),
        strict=True,
    ):
        assert line.strip().startswith(expected), line
    assert "twice" not in str(told.value), "what was left out is not held against another key"


def test_a_variable_in_upper_case_means_the_map_that_the_file_writes_otherwise() -> None:
    def backups(variable: str, text: str = "") -> dict[str, int]:
        settings = load(text, {variable: "3"})
        return {name: one.backups for name, one in settings.maps.items() if name != "default"}

    orders = "[maps.orders]\nttl_ms = 5\n"
    assert backups("HOLDFAST_MAPS_orders_BACKUPS") == {"orders": 3}
    assert backups("HOLDFAST_MAPS_ORDERS_BACKUPS", orders) == {"orders": 3}
    assert backups("HOLDFAST_MAPS_Orders_BACKUPS", orders) == {"orders": 1, "Orders": 3}
    assert backups("HOLDFAST_MAPS_ORDERS_BACKUPS") == {"ORDERS": 3}
    both = orders + "[maps.ORDERS]\nttl_ms = 5\n"
    assert backups("HOLDFAST_MAPS_ORDERS_BACKUPS", both) == {"orders": 1, "ORDERS": 3}
    two = orders + "[maps.Orders]\nttl_ms = 5\n"
    assert backups("HOLDFAST_MAPS_ORDERS_BACKUPS", two) == {"orders": 1, "Orders": 1, "ORDERS": 3}


def test_a_mistake_in_a_flag_is_named() -> None:
    with pytest.raises(ConfigError, match=re.escape("the command line: member.client_port = 70000")):
        load(overrides={"member.client_port": 70_000})
    with pytest.raises(ConfigError, match=re.escape("did you mean member.host?")):
        load(overrides={"membr.host": "x"})


OPEN = {"member.host": "0.0.0.0"}
PASSWORD = {"security.username": "u", "security.password": "geheim"}
TOKEN = {"security.token": "geheim"}
SECRET = {"security.member_secret": "geheim"}
TLS = {"tls.certificate": "c.pem", "tls.ca": "ca.pem"}
MUTUAL = {**TLS, "tls.client_certificates": "required"}
NEEDED = ("tls.certificate", "security.username", "security.token", "security.member_secret")


@pytest.mark.parametrize(
    ("given_keys", "missing"),
    [
        ({}, NEEDED),
        (TLS, NEEDED[1:]),
        (MUTUAL, ["security.member_secret"]),
        ({**TLS, **PASSWORD}, ["security.member_secret"]),
        ({**TLS, **TOKEN}, ["security.member_secret"]),
        ({**TLS, **SECRET}, ["security.username", "security.token"]),
        ({**PASSWORD, **SECRET}, ["tls.certificate"]),
    ],
)
def test_an_open_address_without_tls_and_credentials_is_refused(
    given_keys: dict[str, str], missing: list[str]
) -> None:
    with pytest.raises(ConfigError) as told:
        load(overrides={**OPEN, **given_keys})
    assert "member.host = '0.0.0.0' is not allowed without TLS and credentials" in str(told.value)
    for key in NEEDED:
        assert (key in str(told.value)) == (key in missing)
    assert load(overrides={**OPEN, **given_keys, "security.allow_insecure_bind": True})


@pytest.mark.parametrize("credentials", [PASSWORD, TOKEN, {"tls.client_certificates": "required"}])
def test_an_open_address_with_tls_and_credentials_is_allowed(credentials: dict[str, str]) -> None:
    assert load(overrides={**OPEN, **TLS, **credentials, **SECRET}).tls.enabled


def test_a_cluster_name_has_at_most_512_characters() -> None:
    assert load(overrides={"cluster.name": "c" * 512}).cluster.name == "c" * 512
    with pytest.raises(ConfigError, match=r"cluster\.name"):
        load(overrides={"cluster.name": "c" * 513})


@pytest.mark.parametrize(
    ("given_keys", "why"),
    [
        ({"tls.certificate": "c"}, "tls.ca must be set too"),
        ({"tls.key": "k"}, "tls.certificate must be set too, because tls.key is"),
        ({"tls.ca": "k"}, "tls.certificate must be set too, because tls.ca is"),
        ({"tls.client_certificates": "required"}, "not allowed without tls.certificate"),
        ({**TLS, "tls.member_key": "k"}, "tls.member_certificate must be set too"),
        ({**TLS, "tls.minimum_version": "1.1"}, "it must be '1.2' or '1.3'|it must be '1.3' or '1.2'"),
    ],
)
def test_settings_of_tls_fit_together(given_keys: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(overrides=given_keys)


@pytest.mark.parametrize(
    ("host", "only_here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_open_addresses(host: str, only_here: bool) -> None:
    assert is_loopback(host) is only_here


def test_secrets_are_never_shown() -> None:
    settings = load(overrides={**PASSWORD, **TOKEN, **SECRET})
    assert "geheim" not in f"{settings!r} {settings} {settings.security!r} {settings.security}"
    assert "username='u'" in repr(settings)
    with pytest.raises(ConfigError) as told:
        load("[security]\ntoken = 31415926")
    assert "31415926" not in str(told.value)


def test_members_agree_on_what_they_share_and_nothing_else() -> None:
    mine = load("[maps.flights]\nbackups = 2")
    same = load(
        "[maps.flights]\nbackups = 2\n[member]\nname = 'other'\n[partitions]\nparallel_migrations = 3"
    )
    other = load("[maps.flights]\nbackups = 1")
    assert mine.digest() == same.digest()
    assert disagreement(mine.shared(), same.shared()) is None
    assert mine.digest() != other.digest()
    told = disagreement(mine.shared(), other.shared())
    assert told is not None
    assert told.startswith("maps.flights.backups is 2 here and 1 there")
    assert "not configured there" in str(disagreement(mine.shared(), load().shared()))
    ranked = load("[partitions]\nplacement = 'rendezvous'")
    told = disagreement(load().shared(), ranked.shared())
    assert str(told).startswith("partitions.placement is even here and rendezvous there")


@given(backups=st.integers(-2, 9), others=st.integers(-2, 9))
def test_backups_are_accepted_exactly_within_their_bounds(backups: int, others: int) -> None:
    allowed = backups >= 0 and others >= 0 and backups + others <= BACKUPS_MAX
    text = f"[maps.m]\nbackups = {backups}\nasync_backups = {others}"
    if allowed:
        assert load(text).map("m").copies == 1 + backups + others
    else:
        with pytest.raises(ConfigError, match=r"maps\.m\."):
            load(text)


@given(st.text(max_size=40))
def test_any_text_gives_settings_or_a_config_error(text: str) -> None:
    try:
        assert isinstance(load(text), Settings)
    except ConfigError:
        pass
    try:
        host, port = parse_address(text, "cluster.seeds")
    except ConfigError:
        return
    assert host
    assert 1 <= port <= 65_535


@pytest.mark.parametrize(
    ("text", "pair"),
    [("a:1", ("a", 1)), ("[::1]:5751", ("::1", 5751)), ("10.0.0.1:65535", ("10.0.0.1", 65_535))],
)
def test_addresses(text: str, pair: tuple[str, int]) -> None:
    assert parse_address(text, "key") == pair


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":1", "::1:5751", "a:0", "a:65536", "a:x", "a:-1", "[]:1", "a:\uff11"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="key = "):
        parse_address(text, "key")


def test_seeds_may_be_records_of_the_dns() -> None:
    settings = load(overrides={"cluster.seeds": ["srv:_member._tcp.grid.example", "grid.example:5751"]})
    assert settings.seed_addresses() == [("srv:_member._tcp.grid.example", 0), ("grid.example", 5751)]
    for wrong in (
        "srv:",
        "srv:grid.example",
        "srv:_member.grid.example",
        "srv:_member._tcp.",
        "srv:_m._tcp.a b",
    ):
        with pytest.raises(ConfigError, match=r"cluster\.seeds = .* an SRV record is written"):
            load(overrides={"cluster.seeds": [wrong]})
    with pytest.raises(ConfigError, match=r"cluster\.dns_servers = "):
        load(overrides={"cluster.dns_servers": ["127.0.0.1"]})


def test_the_printed_schema_is_valid_toml_and_changes_nothing() -> None:
    from holdfast.cli.configuration import as_toml

    assert load(as_toml()) == load()
    everybody = re.sub(r"^# (\[(users|roles|processors)\.NAME\])", r"\1", as_toml(), flags=re.MULTILINE)
    live, count = re.subn(r"^# (\w+ = )", r"\1", everybody, flags=re.MULTILINE)
    settings = load(live)
    assert count == len(schema()) == len(settings.given)
    kept = {name: {} for name in ("users", "roles", "processors", *COLLECTION_SECTIONS)}
    assert msgspec.structs.replace(settings, given=frozenset(), **kept) == load()


def test_maps_of_which_no_copy_is_left_are_those_that_do_not_ignore_it() -> None:
    text = "[maps.default]\nbackups = 0\nloss_policy = 'read-write-safe'\n[maps.two]\nbackups = 2\n"
    text += "[maps.careless]\nloss_policy = 'ignore'\n"
    settings = load(text)
    assert settings.guarded(1) == ("default",)
    assert settings.guarded(2) == ("default",)
    assert settings.guarded() == settings.guarded(3) == ("default", "two")
    assert [settings.configured(name) for name in ("two", "other")] == ["two", "default"]


# -- users, roles and rules

USERS = """
[users.ada]
passwords = ["the old one", "the new one"]
roles = ["writer"]

[roles.writer]
rules = ["map flights-* read put", "cluster * status"]
"""


def test_users_have_roles_and_these_have_rules() -> None:
    settings = load(USERS)
    assert settings.clients_authenticate
    user = users_of(settings)["ada"]
    assert [str(rule.kind) for rule in user.rules] == ["map", "cluster"]
    assert user.rules[0].concerns(Kind.MAP, "flights-7")
    assert not user.rules[0].concerns(Kind.MAP, "Flights-7")
    assert not user.rules[0].concerns(Kind.SERVICE, "flights-7")
    assert user.rules[0].actions == {Action.READ, Action.PUT}
    assert not user.everything


def test_a_rule_for_all_maps_is_not_one_for_those_that_holdfast_keeps() -> None:
    every, own = read_rule("map * read", "x"), read_rule("map __schemas* any", "x")
    assert every.concerns(Kind.MAP, "anything")
    assert not every.concerns(Kind.MAP, "__transactions")
    assert not read_rule("map ?_* read", "x").concerns(Kind.MAP, "__objects")
    assert own.concerns(Kind.MAP, "__schemas.spark")
    assert not own.concerns(Kind.MAP, "__transactions")
    assert own.actions == set(ACTIONS[Kind.MAP])


def test_a_prefix_needs_a_rule_for_all_that_begins_so() -> None:
    rule = read_rule("metastore app/* read", "x")
    assert rule.concerns_all(Kind.METASTORE, "app/")
    assert rule.concerns_all(Kind.METASTORE, "app/one")
    assert not rule.concerns_all(Kind.METASTORE, "app")
    assert not read_rule("metastore app/one read", "x").concerns_all(Kind.METASTORE, "app/one")


def test_secrets_of_users_are_shown_by_nothing() -> None:
    settings = load(USERS)
    assert "the old one" not in repr(settings)
    assert "the old one" not in repr(users_of(settings))
    with pytest.raises(ConfigError) as wrong:
        load('[users.ada]\npasswords = ["mine", 7]')
    assert "mine" not in str(wrong.value)


def test_users_come_from_the_environment_too() -> None:
    settings = load(
        environ={
            "HOLDFAST_USERS_ada_PASSWORDS": "old,new",
            "HOLDFAST_USERS_ada_ROLES": "r",
            "HOLDFAST_ROLES_r_RULES": "map * read, map own put",
        }
    )
    assert settings.users["ada"].passwords == ["old", "new"]
    assert settings.roles["r"].rules == ["map * read", "map own put"]


def test_a_verifier_checks_a_password_and_does_not_tell_it() -> None:
    made = password_verifier("correct horse", bytes(range(16)))
    read = read_verifier(str(made), "x")
    assert isinstance(read, PasswordVerifier)
    assert read.matches("correct horse")
    assert not read.matches("correct horse ")
    assert "correct" not in str(made)
    token = read_verifier(str(token_verifier(b"a token that is long enough")), "x")
    assert isinstance(token, TokenVerifier)
    assert token.matches(b"a token that is long enough")
    assert not token.matches(b"")


LONG_TOKEN = "a token of more than 24 characters"
WRONG_USERS = {
    "[users]": "[users] has nothing in it",
    "[users.ada]": "[users.ada] has nothing in it",
    "[users.ada]\nroles = ['r']": "users.ada.roles: there is no role 'r'; known are admin",
    "[roles.r]\nrules = ['map * read']": "users must be set, because roles are",
    "[users.a]\nroles = ['admin']\n[roles.admin]\nrules = []": "roles.admin is not allowed",
    "[users.a]\nroles = ['r']\n[roles.r]\nrules = ['map *']": "'map *' is not a rule: write KIND NAME ACTION",
    "[users.a]\nroles = ['r']\n[roles.r]\nrules = ['mop * read']": "there is no kind 'mop'; known are map",
    "[users.a]\nroles = ['r']\n[roles.r]\nrules = ['map * drain']": "'drain' is nothing that is done with a map",
    "[users.a]\nroles = ['r']\n[roles.r]\nrules = ['cluster x drain']": "write 'cluster * drain'",
    "[users.a]\npasswords = ['']": "users.a.passwords has an empty one",
    "[users.a]\npasswords = ['1', '2', '3']": "users.a.passwords = *** is not allowed",
    "[users.a]\ntokens = ['short']": "users.a.tokens has one of fewer than 24 characters",
    f"[users.a]\ntokens = ['{LONG_TOKEN}']\n[users.b]\ntokens = ['{LONG_TOKEN}']": "users.a and users.b have the",
    "[users.a]\nverifiers = ['scrypt:x']": "users.a.verifiers has something that is no verifier",
    "[users.a]\nverifiers = ['sha256:AAAA']": "users.a.verifiers has something that is no verifier",
    "[users.a]\nroles = ['admin']\n[security]\nusername = 'u'\npassword = 'p'": "contradict users",
    "[users.a]\nrole = ['admin']": "unknown key users.a.role; did you mean roles?",
}


@pytest.mark.parametrize("text", WRONG_USERS)
def test_a_mistake_about_users_says_what_to_write_instead(text: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        load(text)
    assert WRONG_USERS[text] in str(wrong.value)


def test_a_verifier_that_takes_too_much_is_refused() -> None:
    made = str(PasswordVerifier(*COST, salt=bytes(16), hashed=bytes(32)))
    for cost in ("262144:8:5", "16384:8:99", "131072:16:1", "16383:8:5", "0:8:5", "16384:0:5"):
        with pytest.raises(ConfigError):
            read_verifier(made.replace("16384:8:5", cost), "x")


def test_the_documentation_lists_every_action() -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z-]+)` \| `([a-z-]+)` \| (.+) \|$", text, flags=re.MULTILINE))
    assert listed == {
        (kind, action, what) for kind, actions in ACTIONS.items() for action, what in actions.items()
    }


def test_the_roles_of_the_documentation_can_be_used() -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    (roles,) = re.findall(r"### Example roles\n\n```toml\n(.*?)```", text, flags=re.DOTALL)
    assert len(load(f"[users.a]\nroles = ['operator']\n{roles}").roles) == 6


def test_what_came_later_is_told_only_where_it_is_not_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older members do not know it: builds can be mixed as long as nobody uses it."""
    before = load().shared()
    later = frozenset({"maps.backups", "partitions.lost", "services.backups"})
    monkeypatch.setattr("holdfast.config.sharing.LATER", later)
    told = load().shared()
    assert before.keys() - told.keys() == {"maps.default.backups", "partitions.lost"}
    assert disagreement(told, load().shared()) is None
    used = load("[maps.default]\nbackups = 2\n[partitions]\nlost = 'accept'").shared()
    assert used["maps.default.backups"] == "2"
    assert used["partitions.lost"] == "accept"
    assert "maps.default.backups is not configured here and 2 there" in str(disagreement(told, used))


def test_what_can_be_changed_while_a_member_runs_is_marked_and_there_is_somebody_to_do_it() -> None:
    live = {key.dotted for key in schema() if key.live}
    assert live == APPLIERS.keys()


def test_settings_are_changed_together_or_not_at_all_and_only_those_that_can_be() -> None:
    before = load()
    after = changed(before, {"limits.connections": "7", "limits.idle_timeout_ms": "1000"})
    assert (after.limits.connections, after.limits.idle_timeout_ms) == (7, 1000)
    assert after.is_given("limits.connections")
    back = {"connections": before.limits.connections, "idle_timeout_ms": before.limits.idle_timeout_ms}
    assert msgspec.structs.replace(after.limits, **back) == before.limits, "all others are as they were"
    with pytest.raises(ConfigError) as told:
        changed(before, {"limits.connections": "0", "limits.key_bytes": "99", "limits.connectoins": "7"})
    lines = str(told.value).splitlines()
    assert lines[0] == "3 settings are wrong:"
    assert "limits.connections = '0' is not allowed" in lines[1]
    assert "limits.key_bytes is read when a member starts: change it in its file" in lines[2]
    assert "did you mean connections?" in lines[3]
