"""Renamed settings keep their first names wherever they are sent or stored, so that builds can be mixed."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.config import disagreement, load
from holdfast.config.describe import schema
from holdfast.config.loading import find_key
from holdfast.config.sharing import ENCODED_NAMES, encoded_key, key_of_encoded
from holdfast.engine.recording import Begun, settings_of
from holdfast.errors import ConfigError

FULL = """
[cluster]
name = "flights"
quorum = "any"
on_missing_data_dirs = "accept"
[member]
availability_zone = "a"
[partitions]
count = 31
group_by = "zone"
placement = "rendezvous"
lost = "accept"
max_in_flight_bytes = 2048
max_in_flight_bytes_total = 4096
[metastore]
voters = 3
[replication]
unknown_writes = "fail"
request_ids = 77
[http]
allowed_hosts = ["grid.example"]
[limits]
auth_frame_bytes = 1024
auth_timeout_ms = 1
unauthenticated_connections = 2
idle_timeout_ms = 3
output_buffer_bytes = 65537
total_output_buffer_bytes = 65538
async_backlog_bytes = 65539
[maps.default]
backups = 2
[maps.orders]
backups = 1
raft_zone = "z"
"""

SENT = """\
cluster.name=flights
cluster.quorum=any
partitions.count=31
partitions.group_by=zone
partitions.placement=rendezvous
partitions.lost=accept
metastore.voters=3
replication.on_unknown=fail
replication.request_ids=77
maps.default.backups=2
maps.default.async_backups=0
maps.default.ttl_ms=0
maps.default.max_idle_ms=0
maps.default.journal=off
maps.default.read_backups=False
maps.default.reads=primary
maps.default.zone=
maps.default.changes_bytes=0
maps.default.transactional=True
maps.default.loss_policy=ignore
maps.orders.backups=1
maps.orders.async_backups=0
maps.orders.ttl_ms=0
maps.orders.max_idle_ms=0
maps.orders.journal=off
maps.orders.read_backups=False
maps.orders.reads=primary
maps.orders.zone=z
maps.orders.changes_bytes=0
maps.orders.transactional=True
maps.orders.loss_policy=ignore"""
"""What builds of before the renames sent for `FULL`."""

STORED = {
    "cluster": {"missing_stores": "accept"},
    "member": {"zone": "a"},
    "partitions": {"flight_bytes": 2048, "flight_bytes_total": 4096},
    "replication": {"on_unknown": "fail"},
    "http": {"hosts": ["grid.example"]},
    "limits": {
        "greeting_bytes": 1024,
        "greeting_timeout_ms": 1,
        "half_open_connections": 2,
        "silent_ms": 3,
        "unread_bytes": 65537,
        "all_unread_bytes": 65538,
        "async_bytes": 65539,
    },
}
"""How builds of before the renames recorded the renamed settings of `FULL`."""


def test_shared_settings_are_sent_as_builds_before_the_renames_sent_them() -> None:
    settings = load(FULL)
    assert settings.digest() == SENT
    assert [f"{key}={value}" for key, value in settings.shared().items()] == SENT.splitlines()


def test_a_disagreement_names_the_keys_that_users_write() -> None:
    reason = disagreement(load(FULL).shared(), load(FULL.replace('"fail"', '"retry"')).shared())
    assert str(reason).startswith("replication.unknown_writes is fail here and retry there")


def test_recorded_settings_keep_their_first_names() -> None:
    settings = load(FULL)
    stored = msgspec.to_builtins(settings)
    found = {section: {key: stored[section][key] for key in keys} for section, keys in STORED.items()}
    assert found == STORED
    life = Begun(1, "one", 0, msgspec.msgpack.encode(settings), b"", [], None)
    assert settings_of(life) == settings


def test_every_renamed_key_is_known_and_its_first_name_free() -> None:
    known = {key.dotted for key in schema()}
    tables = {"maps": "maps.default"}
    for section, names in ENCODED_NAMES.items():
        for name, first in names.items():
            dotted, old = (f"{tables.get(section, section)}.{each}" for each in (name, first))
            assert dotted in known and old not in known
            assert (encoded_key(dotted), key_of_encoded(old)) == (old, dotted)
            with pytest.raises(ConfigError, match=f"unknown key {old}; did you mean {name}\\?"):
                find_key(old, "the file")
    for dotted in known - {f"{section}.{name}" for section, names in ENCODED_NAMES.items() for name in names}:
        assert key_of_encoded(dotted) == dotted


def test_a_key_that_keeps_its_name_is_sent_under_it() -> None:
    assert (
        encoded_key("maps.orders.backups") == key_of_encoded("maps.orders.backups") == "maps.orders.backups"
    )
    assert encoded_key("log.level") == key_of_encoded("log.level") == "log.level"
