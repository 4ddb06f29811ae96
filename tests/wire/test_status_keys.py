"""A status keeps its first names between members and clients of different builds."""

from __future__ import annotations

from holdfast.wire.status_keys import ENCODED_KEYS, decoded_status, encoded_status

SENT: dict[str, object] = {
    "uuid": "a",
    "wish": "leave",
    "why_kept": "the cluster is frozen",
    "refusal": "",
    "ending": False,
    "missing": ["c"],
    "waits_for": ["c"],
    "short_of_memory": {"b": "none"},
    "batches_waiting": 3,
    "safe": False,
    "why_unsafe": "x",
    "why_cluster_unsafe": "y",
    "doors": {"logins refused": 2},
    "lane": "python",
    "why_not_compiled": "z",
    "why_these_sockets": "",
    "partitions": {
        "count": 271,
        "holes": 1,
        "waits_for_members": 1,
        "waiting_for_copies": 2,
        "lost_to_maps": {},
    },
    "backlog": {"bytes": 0, "crowded": True, "refusing": False},
    "files": {"segments": 2, "doubts": ["d"]},
    "member_secret": {"not_the_first": ["a"], "not_the_second": []},
    "metastore": {"leader": "a", "under_way": 0},
    "protocol": {"spoken": {"a": 1}},
    "slow_operations": {"last": [], "under_way": [], "count": 0},
    "tls": {"trouble": ""},
    "zones": [{"name": "z", "lacking": 1, "takes": ["a"]}],
}
"""What a member of the first build sends, as far as its keys have other names now."""


def test_a_status_is_sent_with_the_names_that_the_first_build_reads() -> None:
    read = decoded_status(SENT)
    assert (read["unsafe_reason"], read["leave_blocker"], read["desired_state"]) == (
        "x",
        "the cluster is frozen",
        "leave",
    )
    assert read["partitions"]["missing_replicas"] == 1  # type: ignore[index]
    assert read["zones"] == [{"name": "z", "under_replicated": 1, "eligible_members": ["a"]}]
    assert "why_unsafe" not in read
    assert encoded_status(read) == SENT
    assert list(encoded_status(read)) == list(SENT), "also in the same order"


def test_every_renamed_key_is_among_those_of_the_first_build() -> None:
    for section, keys in ENCODED_KEYS.items():
        inner = SENT if not section else SENT[section]
        names = inner[0] if isinstance(inner, list) else inner
        assert set(keys.values()) <= set(names), section  # type: ignore[call-overload]


def test_sections_that_are_absent_or_strange_stay() -> None:
    strange: dict[str, object] = {"metastore": None, "tls": None, "zones": [None, 3], "more": {"takes": 1}}
    assert decoded_status(strange) == strange
    assert encoded_status(strange) == strange
