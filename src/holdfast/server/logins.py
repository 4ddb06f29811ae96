"""Who comes in: what a client says of itself, compared with what is known of users; and those slowed who guess.

- server/L-1: An address from which logins have failed `FREE` times waits before each further one, twice as long each
  time, and has one looked at at a time. Of more than it can wait for it is told at once to come again later.
- server/L-2: A name with which logins have failed often, from wherever, is looked at later: but only for a moment, so
  that nobody keeps a user out by guessing.
- server/L-3: Right and wrong are looked for in the same way, whether there is such a user or not.
- server/L-4: Checking a password may take long on purpose: it is done elsewhere (`Prover`), the addresses in turn.
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
"""So many failures cost nothing,"""
FORGIVEN_NS: Final = 12 * SECOND
"""and one is forgotten after so long."""
FIRST_NS, MOST_NS = 100 * MILLISECOND, 2000 * MILLISECOND
"""How long an address waits after these, and at most."""
FREE_OF_USER: Final = 20
USER_NS: Final = 500 * MILLISECOND
"""The same for a name, and how long it is looked at later."""
KEPT: Final = 1000
"""Addresses, and names, of which failures are known; the oldest are forgotten first."""
PROVEN_MAX: Final = 1000
"""Passwords that were right, of which it is known that they were."""

AGAIN: Final = "too many logins from this address have failed: come again in a moment"


@dataclass(frozen=True, slots=True)
class Login:
    """What a client says of itself."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: bytes | None = field(default=None, repr=False)
    address: str = ""
    """Where it comes from."""

    @property
    def named(self) -> str:
        """As whom it comes, for the log."""
        return self.username or ("a token" if self.token is not None else "nobody")


class LoginAnswer(NamedTuple):
    """What comes of it."""

    rights: Rights | None
    """None: the credentials are wrong."""
    again: str = ""
    """Why it was not looked at, and may be tried again."""


WRONG: Final = LoginAnswer(None)
LoginDone = Callable[[LoginAnswer], None]


class Prover(Protocol):
    """Checks passwords, which takes long, while the member goes on."""

    def prove(
        self,
        verifiers: tuple[PasswordVerifier, ...],
        password: str,
        address: str,
        needed: Callable[[], bool],
        done: Callable[[bool], None],
    ) -> None:
        """Is it one of these? `done` is told later. The addresses have their turns. `needed`: whether anybody still
        wants to know, asked before it is begun.
        """


class Later(Protocol):
    """What calls back: the event loop."""

    def call_later(self, delay: float, deed: Callable[[], object], /) -> object:
        """Call this after so many seconds."""


class _Failures:
    """How often something has failed lately."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Name -> failures, as of when."""

    def count(self, name: str, now_ns: int) -> int:
        """So many are not forgiven."""
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
    """Of one member."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], int],
        prover: Callable[[], Prover],
        later: Callable[[], Later],
        seed: bytes,
    ) -> None:
        """`clock`: in nanoseconds. `prover` and `later` are asked for when they are needed. `seed`: bytes that no other
        process has.
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
        """Addresses that are slowed, and when the next login of each is looked at."""
        self._decoys = _decoys(self._users.values(), seed.ljust(16, b"\0")[:16])
        """What is checked of somebody whom there is not, and besides the verifiers of who has fewer than others."""
        self._most_ns = min(MOST_NS, settings.limits.auth_timeout_ms * MILLISECOND // 3)
        """Who waits longer for its login is closed before it."""

    def ask(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        """Look at a login; `done` is told, now or later. `needed`: whether anybody still waits for that."""
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
        """How long until it is looked at."""
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

    # -- looking

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
        """`possible`: whether one of the verifiers is the user's."""

        def still_needed() -> bool:
            """Whether somebody waits, and nobody else has shown meanwhile that it is right."""
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
        """Whether it is right, as far as that is quickly seen."""
        user = self._users.get(name)
        passwords = user.passwords if user is not None else ("",)
        same = [hmac.compare_digest(each.encode(), password.encode()) for each in passwords]
        return user is not None and (any(same) or (name, self._digest(password)) in self._proven)

    def _digest(self, password: str) -> bytes:
        """By which a password is known again, in this process alone."""
        return blake2b(password.encode(), key=self._seed[:64], digest_size=32).digest()

    def _remember(self, name: str, password: str) -> None:
        self._proven[name, self._digest(password)] = None
        if len(self._proven) > PROVEN_MAX:
            self._proven.popitem(last=False)

    def _owner_of(self, token: bytes) -> str | None:
        """The user whose token it is. All are looked at."""
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
        """Count it, also when nobody waits for the answer any more."""
        now_ns = self._clock()
        self._by_address.add(net_of(login.address), now_ns)
        self._by_name.add(login.named, now_ns)


def _decoys(users: Iterable[User], salt: bytes) -> tuple[PasswordVerifier, ...]:
    """Verifiers of no password: as many as any user has, each as costly as his. None if nobody has one."""
    most = max((user.verifiers for user in users), key=len, default=())
    return tuple(PasswordVerifier(one.n, one.r, one.p, salt, bytes(len(one.hashed))) for one in most)


def net_of(address: str) -> str:
    """Whose an address is taken to be: of IPv6 whoever has one has all that begin so."""
    try:
        read = ip_address(address)
    except ValueError:
        return address
    if isinstance(read, IPv6Address) and read.ipv4_mapped is None:
        return f"{IPv6Address(int(read) >> 64 << 64)}/64"
    return address


def _only_user(settings: Settings) -> dict[str, User]:
    """What `[security]` says, where there are no users: one who may do everything."""
    security = settings.security
    name = security.username or "token"
    passwords = (security.password,) if security.username else ()
    tokens = (token_verifier(security.token.encode()),) if security.token else ()
    return {name: User(name, passwords, (), tokens, (), everything=True)}
