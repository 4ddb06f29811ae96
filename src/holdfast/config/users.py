"""Users with their credentials and rules, built from the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.config.permissions import ADMIN, Rule, read_rule
from holdfast.config.schema import Settings
from holdfast.config.user_settings import RoleSettings, UserSettings
from holdfast.config.verifiers import (
    TOKEN_CHARACTERS,
    PasswordVerifier,
    TokenVerifier,
    read_verifier,
    token_verifier,
)
from holdfast.errors import ConfigError


@dataclass(frozen=True)
class User:
    name: str
    passwords: tuple[str, ...] = field(repr=False)
    verifiers: tuple[PasswordVerifier, ...] = field(repr=False)
    """Verifiers of further passwords."""
    tokens: tuple[TokenVerifier, ...] = field(repr=False)
    rules: tuple[Rule, ...]
    everything: bool
    """Whether the user has the role `admin`, which needs no rules."""


def users_of(settings: Settings) -> dict[str, User]:
    """All users, by name. Raises ConfigError."""
    roles = _rules(settings.roles)
    return {name: _user(name, chosen, roles) for name, chosen in settings.users.items()}


def _rules(roles: Mapping[str, RoleSettings]) -> dict[str, tuple[Rule, ...]]:
    if ADMIN in roles:
        raise ConfigError(f"roles.{ADMIN} is not allowed: that role is built in, and may do everything")
    return {
        name: tuple(read_rule(text, f"roles.{name}.rules") for text in role.rules)
        for name, role in roles.items()
    }


def _user(name: str, chosen: UserSettings, roles: Mapping[str, tuple[Rule, ...]]) -> User:
    for role in chosen.roles:
        if role != ADMIN and role not in roles:
            known = ", ".join([*sorted(roles), ADMIN])
            raise ConfigError(f"users.{name}.roles: there is no role {role!r}; known are {known}")
    if not all(chosen.passwords):
        raise ConfigError(f"users.{name}.passwords has an empty one")
    if any(len(token) < TOKEN_CHARACTERS for token in chosen.tokens):
        raise ConfigError(
            f"users.{name}.tokens has one of fewer than {TOKEN_CHARACTERS} characters: make it with "
            "`holdfast credentials --token`"
        )
    read = [read_verifier(text, f"users.{name}.verifiers") for text in chosen.verifiers]
    passwords = tuple(one for one in read if isinstance(one, PasswordVerifier))
    tokens = [one for one in read if isinstance(one, TokenVerifier)]
    tokens += [token_verifier(token.encode()) for token in chosen.tokens]
    if len(chosen.passwords) + len(passwords) > 2 or len(tokens) > 2:
        raise ConfigError(
            f"users.{name} has more than two passwords or tokens: only an old and a new one are possible"
        )
    rules = dict.fromkeys(rule for role in chosen.roles if role != ADMIN for rule in roles[role])
    return User(name, tuple(chosen.passwords), passwords, tuple(tokens), tuple(rules), ADMIN in chosen.roles)


def check_users(settings: Settings) -> Iterator[str]:
    """Mistakes in the definitions of users and roles."""
    security = settings.security
    if settings.users and security.clients_authenticate:
        yield (
            "security.username, security.password and security.token contradict users: define every user under "
            f"[users.NAME] instead. With the role '{ADMIN}' the present user keeps its permissions"
        )
    if any(role.rules for role in settings.roles.values()) and not settings.users:
        yield "users must be set, because roles are: without users, everyone may do everything"
    try:
        roles = _rules(settings.roles)
    except ConfigError as wrong:
        yield str(wrong)
        return
    tokens: dict[bytes, str] = {}
    for name, chosen in settings.users.items():
        try:
            user = _user(name, chosen, roles)
        except ConfigError as wrong:
            yield str(wrong)
            continue
        for token in user.tokens:
            if token.hashed in tokens:
                yield f"users.{tokens[token.hashed]} and users.{name} have the same token"
            tokens[token.hashed] = name
