"""Settings of `holdfast.Member`: keywords for the sections `cluster` and `member`, dotted names for all."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from holdfast.config import ClusterSettings, Settings, load
from holdfast.errors import ConfigError

ORIGIN = "holdfast.Member"


class MemberKeywords(TypedDict, total=False):
    """Settings of the sections `cluster` and `member` by name; `cluster_name` is `cluster.name`."""

    cluster_name: str
    seeds: list[str]
    dns_servers: list[str]
    bootstrap: bool
    quorum: Literal["majority", "any"]
    heartbeat_ms: int
    suspect_after_ms: int
    initial_members: int
    join_timeout_ms: int
    on_missing_data_dirs: Literal["wait", "accept"]
    name: str
    host: str
    public_host: str
    member_port: int
    client_port: int
    lite: bool
    group: str
    availability_zone: str
    rack: str
    attributes: dict[str, str]
    batch_invalidations: bool
    lane: Literal["auto", "python"]
    sockets: Literal["auto", "poll", "loop"]


def settings_of(settings: Settings | Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Settings:
    """Loaded settings unchanged; otherwise environment, dotted names and keywords. Raises ConfigError."""
    known = list(MemberKeywords.__annotations__)
    for key in keywords:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else "."
            raise ConfigError(
                f"{ORIGIN}: there is no keyword {key!r}{meant} Others go by their dotted names: "
                'Member({"maps.flights.backups": 2})'
            )
    if isinstance(settings, Settings):
        if keywords:
            raise TypeError(f"{ORIGIN}: give settings that were loaded, or keywords, not both")
        return settings
    overrides = {**(settings or {}), **{_dotted(key): value for key, value in keywords.items()}}
    return load(None, os.environ, overrides, overrides_from=ORIGIN)


def _dotted(keyword: str) -> str:
    if keyword == "cluster_name":
        return "cluster.name"
    of_cluster = keyword != "name" and keyword in ClusterSettings.__struct_fields__
    return f"{'cluster' if of_cluster else 'member'}.{keyword}"
