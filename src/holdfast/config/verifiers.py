"""Verifiers: values that can check a password or a token, but do not reveal it.

- `scrypt:16384:8:5:SALT:HASH` for a password. It is slow and needs memory on purpose, so that a stolen verifier
does not   allow many guesses. - `sha256:HASH` for a token. Tokens are random and long (`holdfast credentials
--token`) and cannot be guessed, so their   check may be fast and independent of the user.
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
"""N, r and p of new verifiers: 16 MB of memory, about 0.2 s."""
COST_MAX: Final = (2**17, 16, 16)
MEMORY_MAX: Final = 256 * 2**20
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
TOKEN_CHARACTERS: Final = 24
"""Least characters of a token."""


@dataclass(frozen=True)
class PasswordVerifier:
    n: int
    r: int
    p: int
    salt: bytes
    hashed: bytes

    def matches(self, password: str) -> bool:
        """Whether this is the password. Takes about 0.2 s (`COST`): do not call it on an event loop."""
        return hmac.compare_digest(self.hashed, _scrypt(password, self.n, self.r, self.p, self.salt))

    def __str__(self) -> str:
        return ":".join(
            (SCRYPT, str(self.n), str(self.r), str(self.p), _text_of(self.salt), _text_of(self.hashed))
        )


@dataclass(frozen=True)
class TokenVerifier:
    hashed: bytes

    def matches(self, token: bytes) -> bool:
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
    return TokenVerifier(hashlib.sha256(token).digest())


def read_verifier(text: str, where: str) -> PasswordVerifier | TokenVerifier:
    """Parse a verifier. Raises ConfigError, which does not show it; `where`: its key."""
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
    """Raises ValueError for an invalid verifier, ConfigError for one that needs more than `COST_MAX` allows."""
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
