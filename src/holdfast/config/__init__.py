"""Settings of a member in one schema: name, unit, default, meaning and allowed values.

Three sources are laid over each other, the later one wins: a TOML text, the environment
(`HOLDFAST_<SECTION>_<KEY>`, for maps `HOLDFAST_MAPS_<NAME>_<KEY>`), and flags. `load` merges and checks them;
every mistake is a `ConfigError` that names the key, the given value and the allowed ones.

This package reads neither files nor the environment: the caller passes their contents.
"""

from holdfast.config.addresses import is_loopback, parse_address
from holdfast.config.cp_settings import CpSettings
from holdfast.config.http_settings import HttpSettings
from holdfast.config.loading import load, missing_for_open_address
from holdfast.config.log_settings import LogSettings
from holdfast.config.processor_settings import ProcessorSettings
from holdfast.config.schema import (
    BACKUPS_MAX,
    COLLECTIONS,
    CP_PREFIX,
    INTERNAL,
    KEY_LOCKS,
    MOVES_MAP,
    RELIABLE_TOPIC_PREFIX,
    REQUESTS_MAP,
    SERVICE_PREFIX,
    SWITCHES_MAP,
    TRANSACTIONS_MAP,
    ClusterSettings,
    CollectionSettings,
    LimitSettings,
    MapSettings,
    MemberSettings,
    MetastoreSettings,
    MultimapSettings,
    PartitionSettings,
    PersistenceSettings,
    ReplicationSettings,
    RingbufferSettings,
    SecuritySettings,
    Settings,
    StructureSettings,
    TransactionSettings,
)
from holdfast.config.service_settings import ServiceSettings
from holdfast.config.sharing import disagreement
from holdfast.config.tls_settings import TlsSettings

__all__ = [
    "BACKUPS_MAX",
    "COLLECTIONS",
    "CP_PREFIX",
    "INTERNAL",
    "KEY_LOCKS",
    "MOVES_MAP",
    "RELIABLE_TOPIC_PREFIX",
    "REQUESTS_MAP",
    "SERVICE_PREFIX",
    "SWITCHES_MAP",
    "TRANSACTIONS_MAP",
    "ClusterSettings",
    "CollectionSettings",
    "CpSettings",
    "HttpSettings",
    "LimitSettings",
    "LogSettings",
    "MapSettings",
    "MemberSettings",
    "MetastoreSettings",
    "MultimapSettings",
    "PartitionSettings",
    "PersistenceSettings",
    "ProcessorSettings",
    "ReplicationSettings",
    "RingbufferSettings",
    "SecuritySettings",
    "ServiceSettings",
    "Settings",
    "StructureSettings",
    "TlsSettings",
    "TransactionSettings",
    "disagreement",
    "is_loopback",
    "load",
    "missing_for_open_address",
    "parse_address",
]
