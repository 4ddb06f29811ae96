"""Which handler serves which path.

To add a route:

1. Write a handler: a function of the request and a responder (`http_messages.RouteHandler`), in a module of its own
   beside `member_routes.py`. It asks the member by what it was made with (an `HttpMember`), and answers by the
   responder: with `json_answer(...)` or another `HttpAnswer` at once or later, or with `responder.stream()`, to which
   events are sent as long as somebody listens. It never blocks and takes some ms at most; what is larger goes in turns
   (`HttpMember.soon`).
2. Make it a `Route`, in a function of that module that answers a list of these, and add that list where `Routes` are
   made (`runtime/http/http_door.py`). A path is matched as a whole; one that ends in `/*` serves all that begin so.
3. Say in `server/access.py`, in `HTTP`, what has to be permitted. What is missing there is refused to all who may not
   do everything, and a test fails. A route that gives orders is a `question` there: the handler makes the
   `own.Question` that says the same, and asks `access.question_rejection(request.rights, question, ())` before anything
   else (`member_routes.MemberRoutes.order` is an example).

Whoever asks has been let in by then, his page was looked at (`browser_rules`), and the body is whole. HEAD is served as
GET. Routes that change something are POST, and get JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from holdfast.observe.health import Health
from holdfast.server.grid import Grid
from holdfast.server.http.http_messages import RouteHandler
from holdfast.server.logins import Login, LoginDone


class HttpMember(Protocol):
    """This member, for sessions over HTTP: as for all others (`grid`), and what only these ask."""

    @property
    def grid(self) -> Grid:
        """What sessions of every protocol see of it."""

    @property
    def started(self) -> bool:
        """Whether there is something to ask: until then only open routes are served."""

    @property
    def asks_credentials(self) -> bool:
        """Whether whoever comes has to show who he is."""

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        """Whether these credentials open this door, and what for: as `Grid.log_in`, and `http.token` does too."""

    def health(self) -> Health:
        """How it is now."""

    def metrics(self, accept: str, done: Callable[[bytes, str], None]) -> None:
        """What is measured of this member, as text for Prometheus, with its content type; `done` is told, perhaps
        later: nothing, if an error has kept it from that, and so it is with the next two. `accept`: the header of who
        asks.
        """

    def status(self, done: Callable[[bytes], None]) -> None:
        """`Grid.status` as JSON; a moment old, if several ask; `done` is told, perhaps later."""

    def cluster(self, login: Login | None, done: Callable[[bytes], None]) -> None:
        """What all members say of themselves, as JSON; they are shown these credentials. `done` is told later."""

    def soon(self, deed: Callable[[], None]) -> None:
        """Do this in the next turn of the loop. It raises nothing."""


@dataclass(frozen=True, slots=True)
class Route:
    """One path."""

    method: str
    """GET or POST."""
    path: str
    handler: RouteHandler

    @property
    def name(self) -> str:
        """As `access.HTTP` names it."""
        return f"{self.method} {self.path}"


class Routes:
    """All of a door."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._whole: dict[tuple[str, str], Route] = {}
        self._prefixes: dict[tuple[str, str], Route] = {}
        for route in routes:
            known = self._prefixes if route.path.endswith("/*") else self._whole
            key = (route.method, route.path.removesuffix("*"))
            assert key not in known, f"{route.name} is there twice"
            known[key] = route

    def find(self, method: str, path: str) -> Route | None:
        """The route that serves this; None: there is none."""
        method = "GET" if method == "HEAD" else method
        whole = self._whole.get((method, path))
        if whole is not None:
            return whole
        fitting = [key for key in self._prefixes if key[0] == method and path.startswith(key[1])]
        return self._prefixes[max(fitting, key=len)] if fitting else None

    def methods(self, path: str) -> list[str]:
        """With which methods the path is served, if not with that which was tried."""
        return [method for method in ("GET", "HEAD", "POST") if self.find(method, path) is not None]

    def __iter__(self) -> Iterator[Route]:
        return iter([*self._whole.values(), *self._prefixes.values()])
