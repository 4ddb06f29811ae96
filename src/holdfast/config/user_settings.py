"""The sections `users.NAME` and `roles.NAME`: users with credentials, and what roles permit."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from holdfast.config.sections import Names, SecretiveSection, Secrets, Section, about, sized


class UserSettings(SecretiveSection, frozen=True, kw_only=True):
    """A user with credentials and roles. If any user is configured, every client must log in as one."""

    passwords: Secrets = about([], "Passwords of the user; two while you replace one.")
    tokens: Secrets = about([], "Tokens of the user, instead of a password; two while you replace one.")
    verifiers: Annotated[
        list[Annotated[str, Meta(max_length=1024)]], Meta(max_length=4, extra={"secret": True})
    ] = about([], "Verifiers from `holdfast credentials`, instead of passwords and tokens in plain text.")
    roles: Names = about([], "Roles of the user, each from [roles.NAME]; 'admin' may do everything.")


class RoleSettings(Section, frozen=True, kw_only=True):
    """The permissions of a role. Requests that no rule permits are rejected."""

    rules: list[Annotated[str, Meta(max_length=1024)]] = sized(
        [],
        1024,
        "Rules of the form KIND NAME ACTION ..., as in 'map flights-* read put': see docs/security.md.",
    )
