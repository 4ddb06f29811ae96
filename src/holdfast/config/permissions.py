"""Permissions: kinds of things, actions on them, and the rules that users write.

A rule is a line of words: a kind, a name pattern, and actions, as in `map flights-* read put`. In patterns `*`
stands for any characters, `?` for one, `[ab]` for one of these; case matters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum, unique
from fnmatch import translate
from functools import cached_property
from typing import Final

from holdfast.errors import ConfigError

ANY: Final = "any"
"""Stands for every action of a kind."""
RESERVED: Final = "__"
"""Prefix of internal maps. A rule applies to them only if its pattern has the prefix too."""


@unique
class Kind(StrEnum):
    MAP = "map"
    QUEUE = "queue"
    LIST = "list"
    SET = "set"
    RINGBUFFER = "ringbuffer"
    TOPIC = "topic"
    RELIABLE_TOPIC = "reliable-topic"
    REPLICATED_MAP = "replicated-map"
    PN_COUNTER = "pn-counter"
    FLAKE_ID_GENERATOR = "flake-id-generator"
    CARDINALITY_ESTIMATOR = "cardinality-estimator"
    MULTIMAP = "multimap"
    CP = "cp"
    SERVICE = "service"
    TRANSACTION = "transaction"
    ZONE = "zone"
    METASTORE = "metastore"
    CLUSTER = "cluster"


@unique
class Action(StrEnum):
    READ = "read"
    PUT = "put"
    REMOVE = "remove"
    DESTROY = "destroy"
    LISTEN = "listen"
    LOCK = "lock"
    CUT = "cut"
    CHANGES = "changes"
    CALL = "call"
    ASK = "ask"
    USE = "use"
    LIST = "list"
    ROLL_BACK = "roll-back"
    HOLD = "hold"
    CREATE = "create"
    ALTER = "alter"
    RENAME = "rename"
    DROP = "drop"
    RESET = "reset"
    SHOW = "show"
    STATUS = "status"
    METRICS = "metrics"
    WATCH = "watch"
    VERIFY = "verify"
    REPAIR = "repair"
    STATE = "state"
    SHUTDOWN = "shutdown"
    DRAIN = "drain"
    LITE = "lite"
    DATA = "data"
    ACCEPT_LOSS = "accept-loss"
    RESET_LOST = "reset-lost"
    BASELINE = "baseline"
    UPGRADE = "upgrade"
    EVICT = "evict"
    CONFIGURE = "configure"
    CLIENTS = "clients"
    KILL_CLIENT = "kill-client"
    RESTART = "restart"
    START = "start"


ACTIONS: Final[dict[Kind, dict[Action, str]]] = {
    Kind.MAP: {
        Action.READ: "read entries, one by one or all of them, also by near caches and Spark",
        Action.PUT: "store entries, and change how long they live",
        Action.REMOVE: "remove entries, one by one or all of them",
        Action.DESTROY: "destroy the map",
        Action.LISTEN: "receive changes: entry listeners (values: `read`, too) and near cache invalidations",
        Action.LOCK: "lock entries, and release locks; also by reading in a transaction (`getForUpdate`)",
        Action.CUT: "make a cut of the map, for an export",
        Action.CHANGES: "follow the change stream (previous values: `read`, too)",
    },
    Kind.QUEUE: {
        Action.READ: "read items without taking them (`peek`, `iterator`), and its size",
        Action.PUT: "add items",
        Action.REMOVE: "remove items (what also returns or compares them, as `poll`: `read`, too)",
        Action.DESTROY: "destroy the queue",
        Action.LISTEN: "receive item events (items: `read`, too)",
    },
    Kind.LIST: {
        Action.READ: "read items and their positions",
        Action.PUT: "add items (`set`: `read` and `remove`, too)",
        Action.REMOVE: "remove items (what also returns or compares them: `read`, too)",
        Action.DESTROY: "destroy the list",
        Action.LISTEN: "receive item events (items: `read`, too)",
    },
    Kind.SET: {
        Action.READ: "read items",
        Action.PUT: "add items (`read`, too, because the response tells whether one was there)",
        Action.REMOVE: "remove items (what also compares them: `read`, too)",
        Action.DESTROY: "destroy the set",
        Action.LISTEN: "receive item events (items: `read`, too)",
    },
    Kind.RINGBUFFER: {
        Action.READ: "read items and sequences",
        Action.PUT: "add items, which may replace the oldest ones",
        Action.DESTROY: "destroy the ringbuffer",
    },
    Kind.TOPIC: {
        Action.PUT: "publish messages",
        Action.LISTEN: "receive messages",
        Action.DESTROY: "destroy the topic",
    },
    Kind.RELIABLE_TOPIC: {
        Action.READ: "receive messages",
        Action.PUT: "publish messages",
        Action.DESTROY: "destroy the topic, with its ringbuffer",
    },
    Kind.REPLICATED_MAP: {
        Action.READ: "read entries",
        Action.PUT: "store entries (`put`: `read`, too, because it returns the old value)",
        Action.REMOVE: "remove entries (`remove`: `read`, too)",
        Action.DESTROY: "destroy the map",
        Action.LISTEN: "receive changes (`read`, too)",
    },
    Kind.PN_COUNTER: {
        Action.READ: "read the value",
        Action.PUT: "add to it, and subtract from it (`read`, too, because the response has the value)",
        Action.DESTROY: "destroy the counter",
    },
    Kind.FLAKE_ID_GENERATOR: {
        Action.PUT: "get new ids",
        Action.DESTROY: "destroy the generator",
    },
    Kind.CARDINALITY_ESTIMATOR: {
        Action.READ: "read the estimate",
        Action.PUT: "add values",
        Action.DESTROY: "destroy the estimator",
    },
    Kind.MULTIMAP: {
        Action.READ: "read keys and values",
        Action.PUT: "add values (one at a time: `read`, too, because the response tells whether one was there)",
        Action.REMOVE: "remove values and keys (what also returns or compares them: `read`, too)",
        Action.DESTROY: "destroy the multimap",
        Action.LISTEN: "receive entry events (values: `read`, too)",
        Action.LOCK: "lock entries, and release locks",
    },
    Kind.CP: {
        Action.READ: "read values, counts, permits and owners; wait for a latch",
        Action.PUT: "change atomic values (`read`, too), counts of latches and numbers of permits; count down",
        Action.LOCK: "acquire and release locks and permits, and have sessions",
        Action.DESTROY: "destroy CP objects",
    },
    Kind.SERVICE: {
        Action.CALL: "call a service, which may change its data",
        Action.ASK: "ask a service",
    },
    Kind.TRANSACTION: {
        Action.USE: "begin transactions, commit them and roll them back",
        Action.LIST: "see which transactions run",
        Action.ROLL_BACK: "roll back transactions of others",
        Action.HOLD: "hold commits for a moment, for a cut that shows each transaction whole",
    },
    Kind.ZONE: {
        Action.SHOW: "see the zone and its partitions",
        Action.CREATE: "create it",
        Action.ALTER: "alter its settings",
        Action.RENAME: "rename it; the new name must be permitted, too",
        Action.DROP: "drop it, with everything in it",
        Action.RESET: "let partitions without a majority continue with the replicas that are left",
    },
    Kind.METASTORE: {
        Action.READ: "read a key, its history and its changes",
        Action.PUT: "give a key a value (on a condition: `read`, too)",
        Action.REMOVE: "remove a key (on a condition: `read`, too)",
        Action.RESET: "restart the metastore from one replica",
        Action.START: "start the metastore, and change the number of its voters",
    },
    Kind.CLUSTER: {
        Action.STATUS: "see the status of members and of the cluster",
        Action.METRICS: "read the metrics of members, at their HTTP ports",
        Action.WATCH: "watch migrations and lost partitions",
        Action.VERIFY: "compare copies: digests, and cuts of maps in zones",
        Action.REPAIR: "refill a backup from its primary",
        Action.STATE: "make the cluster active, no-migration, frozen or passive",
        Action.SHUTDOWN: "shut the whole cluster down",
        Action.DRAIN: "let a member leave when its data is on other members",
        Action.LITE: "take a member's partitions from it",
        Action.DATA: "give partitions to a lite member",
        Action.ACCEPT_LOSS: "continue without missing members or files",
        Action.RESET_LOST: "let lost partitions be used again",
        Action.BASELINE: "change which members own data",
        Action.UPGRADE: "raise the feature level of the cluster",
        Action.EVICT: "remove a member whose process has ended, at once",
        Action.CONFIGURE: "change settings of members while they run",
        Action.CLIENTS: "see the connections of clients, with their users and addresses",
        Action.KILL_CLIENT: "end connections of clients",
        Action.RESTART: "restart members, one after the other",
    },
}
"""Actions of each kind, with descriptions."""

UNNAMED: Final = frozenset({Kind.TRANSACTION, Kind.CLUSTER})
"""Kinds with a single, unnamed thing: their rules write `*` for the name."""

ADMIN: Final = "admin"
"""Predefined role that may do everything."""


@dataclass(frozen=True)
class Rule:
    kind: Kind
    pattern: str
    actions: frozenset[Action]

    @cached_property
    def _matches(self) -> re.Pattern[str]:
        return re.compile(translate(self.pattern))

    def concerns(self, kind: Kind, name: str) -> bool:
        """Whether the rule applies to this thing. To internal maps it applies only if its pattern names them."""
        if kind is not self.kind:
            return False
        if kind is Kind.MAP and name.startswith(RESERVED) and not self.pattern.startswith(RESERVED):
            return False
        return self._matches.match(name) is not None

    def concerns_all(self, kind: Kind, prefix: str) -> bool:
        """Whether the rule applies to all things whose names have this prefix."""
        return self.pattern.endswith("*") and self.concerns(kind, prefix)


def read_rule(text: str, where: str) -> Rule:
    """Parse a rule. Raises ConfigError, which lists the alternatives; `where`: the rule's key."""
    words = text.split()
    if len(words) < 3:
        raise ConfigError(
            f"{where}: {text!r} is not a rule: write KIND NAME ACTION ..., as in 'map flights-* read put'"
        )
    kinds = {kind.value: kind for kind in Kind}
    kind = kinds.get(words[0])
    if kind is None:
        raise ConfigError(f"{where}: {text!r}: there is no kind {words[0]!r}; known are {', '.join(kinds)}")
    if kind in UNNAMED and words[1] != "*":
        raise ConfigError(f"{where}: {text!r}: of {kind} there are no names; write '{kind} * {words[2]}'")
    known = {action.value: action for action in ACTIONS[kind]}
    actions: set[Action] = set()
    for word in words[2:]:
        if word == ANY:
            actions.update(known.values())
        elif word in known:
            actions.add(known[word])
        else:
            raise ConfigError(
                f"{where}: {text!r}: {word!r} is nothing that is done with a {kind}; known are "
                f"{', '.join(known)} and {ANY}"
            )
    return Rule(kind, words[1], frozenset(actions))
