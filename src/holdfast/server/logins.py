"""Authentication of clients, with delays against guessing.

An attacker who guesses passwords from few addresses waits longer and longer (server/L-1). One who uses many addresses
against one user delays that name by half a second only: with a longer delay anyone could lock a user out (server/L-2).

The time of a rejection must not reveal whether a user exists. Example: ann has two password hashes (an old and a new
one), bob has one, eve does not exist. A login as ann computes two slow hashes, so a login as bob computes his and one
*decoy*, and a login as eve two decoys. Decoys have the same cost and match no password.

- server/L-1: After `FREE` failed logins an address waits before each further one, twice as long each time, and only one
  is checked at a time. If the wait gets too long, the login is rejected with "try again" at once.
- server/L-2: A name with many failed logins, from any addresses, is checked after a short delay.
- server/L-3: A rejected login costs the same work whether the user exists or not. Only a password that was right before
  is recognized faster.
- server/L-4: Password checks are slow on purpose and run elsewhere (`Prover`); addresses take turns.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple, Protocol

from holdfast.config import Settings
from holdfast.config.users import User, users_of
from holdfast.config.verifiers import PasswordVerifier, token_verifier
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.server.rights import EVERYTHING, Rights

FREE: Final = 5
"""Failures without consequence,"""
FORGIVEN_NS: Final = 12 * SECOND
"""and the time after which one failure is forgotten."""
FIRST_NS, MOST_NS = 100 * MILLISECOND, 2000 * MILLISECOND
"""First and longest delay of an address."""
FREE_OF_USER: Final = 20
USER_NS: Final = 500 * MILLISECOND
"""Free failures of a name, and its delay."""
KEPT: Final = 1000
"""Addresses, and names, with recorded failures; the oldest are dropped first."""
PROVEN_MAX: Final = 1000
"""Remembered passwords that were right, so that they need no slow check again."""

AGAIN: Final = "too many logins from this address have failed: come again in a moment"


@dataclass(frozen=True, slots=True)
class Login:
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: bytes | None = field(default=None, repr=False)
    address: str = ""

    @property
    def named(self) -> str:
        return self.username or ("a token" if self.token is not None else "nobody")


class LoginAnswer(NamedTuple):
    rights: Rights | None
    """None: wrong credentials, if `again` is empty."""
    again: str = ""
    """Reason why the login was not checked and may be retried."""


WRONG: Final = LoginAnswer(None)
LoginDone = Callable[[LoginAnswer], None]


class Prover(Protocol):
    def prove(
        self,
        verifiers: tuple[PasswordVerifier, ...],
        password: str,
        address: str,
        needed: Callable[[], bool],
        done: Callable[[bool], None],
    ) -> None:
        """Whether any verifier matches; `done` is called later. Addresses take turns. `needed`: whether the
        result is still wanted, checked before the start.
        """


class Later(Protocol):
    def call_later(self, delay: float, deed: Callable[[], object], /) -> object: ...


class _Failures:
    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Failures, and the time of that count."""

    def count(self, name: str, now_ns: int) -> int:
        failures, as_of_ns = self._kept.get(name, (0, now_ns))
        return max(0, failures - (now_ns - as_of_ns) // FORGIVEN_NS)

    def add(self, name: str, now_ns: int) -> None:
        self._kept[name] = (self.count(name, now_ns) + 1, now_ns)
        self._kept.move_to_end(name)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def forget(self, name: str) -> None:
        self._kept.pop(name, None)


class Logins:
    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], int],
        prover: Callable[[], Prover],
        later: Callable[[], Later],
        seed: bytes,
    ) -> None:
        """`clock`: in nanoseconds. `prover` and `later` are called when needed. `seed`: random bytes of this
        process.
        """
        self._open = not settings.clients_authenticate
        self._users = users_of(settings) if settings.users else _only_user(settings)
        self._rights = {name: Rights(user) for name, user in self._users.items()}
        self._clock = clock
        self._prover = prover
        self._later = later
        self._seed = seed
        self._proven: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._by_address = _Failures()
        self._by_name = _Failures()
        self._free_at_ns: OrderedDict[str, int] = OrderedDict()
        """Delayed addresses, with the time of the next check."""
        self._decoys = _decoys(self._users.values(), seed.ljust(16, b"\0")[:16])
        """Checked for unknown users, and for users with fewer verifiers than others (server/L-3)."""
        self._most_ns = min(MOST_NS, settings.limits.auth_timeout_ms * MILLISECOND // 3)
        """Longest delay; a third of the time after which the connection is closed."""

    def ask(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        """Check a login; `done` is called now or later. `needed`: whether the result is still wanted."""
        if self._open:
            done(LoginAnswer(EVERYTHING))
            return
        now_ns = self._clock()
        wait_ns = self._wait(login, now_ns)
        if wait_ns > self._most_ns:
            done(LoginAnswer(None, AGAIN))
        elif wait_ns:
            self._later().call_later(wait_ns / SECOND, lambda: self._look(login, needed, done))
        else:
            self._look(login, needed, done)

    def _wait(self, login: Login, now_ns: int) -> int:
        address = net_of(login.address)
        failures = self._by_address.count(address, now_ns)
        wait_ns = 0
        if failures >= FREE:
            pause_ns = min(self._most_ns, FIRST_NS << min(failures - FREE, 16))
            wait_ns = max(0, self._free_at_ns.get(address, 0) - now_ns) + pause_ns
            if wait_ns <= self._most_ns:
                self._free_at_ns[address] = now_ns + wait_ns
                self._free_at_ns.move_to_end(address)
                if len(self._free_at_ns) > KEPT:
                    self._free_at_ns.popitem(last=False)
        if self._by_name.count(login.named, now_ns) >= FREE_OF_USER:
            wait_ns = max(wait_ns, min(USER_NS, self._most_ns))
        return wait_ns

    # -- checks

    def _look(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        if not needed():
            return
        if login.token is not None:
            self._tell(login, self._owner_of(login.token), done)
            return
        name, password = login.username or "", login.password
        user = self._users.get(name)
        own = user.verifiers if user is not None else ()
        verifiers = own + self._decoys[len(own) :]
        if password is None:
            self._tell(login, None, done)
        elif self._is_known(name, password):
            self._tell(login, name, done)
        elif not verifiers:
            self._tell(login, None, done)
        else:
            self._prove(login, name, password, verifiers, needed, done, possible=bool(own))

    def _prove(
        self,
        login: Login,
        name: str,
        password: str,
        verifiers: tuple[PasswordVerifier, ...],
        needed: Callable[[], bool],
        done: LoginDone,
        *,
        possible: bool,
    ) -> None:
        """`possible`: whether any verifier is the user's own."""

        def still_needed() -> bool:
            """Whether the check is still needed. A concurrent login may have proved the same password."""
            if needed() and self._is_known(name, password):
                self._tell(login, name, done)
                return False
            return needed()

        def proven(right: bool) -> None:
            right = right and possible
            if right:
                self._remember(name, password)
            if needed():
                self._tell(login, name if right else None, done)
            elif not right:
                self._failed(login)

        self._prover().prove(verifiers, password, net_of(login.address), still_needed, proven)

    def _is_known(self, name: str, password: str) -> bool:
        user = self._users.get(name)
        passwords = user.passwords if user is not None else ("",)
        same = [hmac.compare_digest(each.encode(), password.encode()) for each in passwords]
        return user is not None and (any(same) or (name, self._digest(password)) in self._proven)

    def _digest(self, password: str) -> bytes:
        """A keyed hash to recognize a proven password, valid in this process only."""
        return blake2b(password.encode(), key=self._seed[:64], digest_size=32).digest()

    def _remember(self, name: str, password: str) -> None:
        self._proven[name, self._digest(password)] = None
        if len(self._proven) > PROVEN_MAX:
            self._proven.popitem(last=False)

    def _owner_of(self, token: bytes) -> str | None:
        """The owner of a token. All tokens are compared, for equal time."""
        found = None
        for name, user in self._users.items():
            for verifier in user.tokens:
                if verifier.matches(token):
                    found = name
        return found

    def _tell(self, login: Login, name: str | None, done: LoginDone) -> None:
        if name is None:
            self._failed(login)
            done(WRONG)
            return
        self._by_name.forget(login.named)
        done(LoginAnswer(self._rights[name]))

    def _failed(self, login: Login) -> None:
        """Count a failed login, also when the client has gone."""
        now_ns = self._clock()
        self._by_address.add(net_of(login.address), now_ns)
        self._by_name.add(login.named, now_ns)


def _decoys(users: Iterable[User], salt: bytes) -> tuple[PasswordVerifier, ...]:
    """Verifiers that match no password: as many, and as costly, as those of the user with most."""
    most = max((user.verifiers for user in users), key=len, default=())
    return tuple(PasswordVerifier(one.n, one.r, one.p, salt, bytes(len(one.hashed))) for one in most)


def net_of(address: str) -> str:
    """The network to count for an address. A client with one IPv6 address usually controls its whole /64."""
    try:
        read = ip_address(address)
    except ValueError:
        return address
    if isinstance(read, IPv6Address) and read.ipv4_mapped is None:
        return f"{IPv6Address(int(read) >> 64 << 64)}/64"
    return address


def _only_user(settings: Settings) -> dict[str, User]:
    """The user of section `[security]`, who has all permissions, if there are no `users`."""
    security = settings.security
    name = security.username or "token"
    passwords = (security.password,) if security.username else ()
    tokens = (token_verifier(security.token.encode()),) if security.token else ()
    return {name: User(name, passwords, (), tokens, (), everything=True)}
