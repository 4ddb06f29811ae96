"""Verifiers: what is kept of a password or a token, so that it can be checked and not be read.

- `scrypt:16384:8:5:SALT:HASH` of a password: making one takes long on purpose, and some memory, so that whoever has the
  verifier cannot try many passwords.
- `sha256:HASH` of a token. Tokens are random and long (`holdfast credentials --token`): nobody can try those, so
  checking one may be quick, and need not know whose it is.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError

SCRYPT, SHA256 = "scrypt", "sha256"
COST: Final = (16_384, 8, 5)
"""N, r and p of new verifiers: 16 MB of memory, and some 0.2 s."""
COST_MAX: Final = (2**17, 16, 16)
MEMORY_MAX: Final = 256 * 2**20
"""Bytes that scrypt may take for one check."""
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
TOKEN_CHARACTERS: Final = 24
"""A token has so many at least."""


@dataclass(frozen=True)
class PasswordVerifier:
    """What is kept of a password."""

    n: int
    r: int
    p: int
    salt: bytes
    hashed: bytes

    def matches(self, password: str) -> bool:
        """Whether it is this one. Takes long (`COST`): nothing that must not wait may call it."""
        return hmac.compare_digest(self.hashed, _scrypt(password, self.n, self.r, self.p, self.salt))

    def __str__(self) -> str:
        return ":".join(
            (SCRYPT, str(self.n), str(self.r), str(self.p), _text_of(self.salt), _text_of(self.hashed))
        )


@dataclass(frozen=True)
class TokenVerifier:
    """What is kept of a token."""

    hashed: bytes

    def matches(self, token: bytes) -> bool:
        """Whether it is this one."""
        return hmac.compare_digest(self.hashed, hashlib.sha256(token).digest())

    def __str__(self) -> str:
        return f"{SHA256}:{_text_of(self.hashed)}"


def _text_of(raw: bytes) -> str:
    return b64encode(raw).decode()


def _scrypt(password: str, n: int, r: int, p: int, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=MEMORY_MAX, dklen=HASH_BYTES)


def password_verifier(password: str, salt: bytes) -> PasswordVerifier:
    """A verifier of this password; `salt`: `SALT_BYTES` random bytes."""
    n, r, p = COST
    return PasswordVerifier(n, r, p, salt, _scrypt(password, n, r, p, salt))


def token_verifier(token: bytes) -> TokenVerifier:
    """A verifier of this token."""
    return TokenVerifier(hashlib.sha256(token).digest())


def read_verifier(text: str, where: str) -> PasswordVerifier | TokenVerifier:
    """The verifier in this text. Raises ConfigError, which does not show it; `where`: the key of it."""
    try:
        match text.split(":"):
            case [name, n, r, p, salt, hashed] if name == SCRYPT:
                return _checked(
                    PasswordVerifier(int(n), int(r), int(p), _bytes_of(salt), _bytes_of(hashed)), where
                )
            case [name, hashed] if name == SHA256:
                found = TokenVerifier(_bytes_of(hashed))
                if len(found.hashed) == HASH_BYTES:
                    return found
    except ValueError:
        pass
    raise ConfigError(
        f"{where} has something that is no verifier: make one with `holdfast credentials`, or write the password into "
        "passwords, the token into tokens"
    )


def _bytes_of(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as broken:
        raise ValueError(str(broken)) from broken


def _checked(found: PasswordVerifier, where: str) -> PasswordVerifier:
    """Raises ValueError for what no verifier has, ConfigError for one that takes more than is allowed."""
    if len(found.hashed) != HASH_BYTES or not SALT_BYTES <= len(found.salt) <= 64:
        raise ValueError("the salt or the hash has another length")
    cost = (found.n, found.r, found.p)
    if found.n < 2 or found.n & (found.n - 1) or min(cost) < 1:
        raise ValueError("N is a power of two")
    if (
        any(each > most for each, most in zip(cost, COST_MAX, strict=True))
        or 130 * found.n * found.r > MEMORY_MAX
    ):
        raise ConfigError(
            f"{where} has a verifier that takes more memory or time than is allowed: N, r and p are at most "
            f"{', '.join(map(str, COST_MAX))}, and together at most {MEMORY_MAX // 2**20} MB"
        )
    return found
