"""Routing of HTTP requests to handlers.

To add a route:

1. Write a handler: a function of a request and a responder (`http_messages.RouteHandler`), in a module beside
   `member_routes.py`. It gets an `HttpMember` when it is made, and responds with `json_answer(...)` or another
   `HttpAnswer`, now or later, or with `responder.stream()`. It must not block, and takes some ms at most; longer work
   runs in slices (`HttpMember.soon`).
2. Return its `Route` from a function of that module, and add that to `Routes` in `runtime/http/http_door.py`. A path
   that ends in `/*` matches all paths with that prefix.
3. Add its permissions to `HTTP` in `server/access.py`. A route without an entry is rejected for users with limited
   rights, and a test fails. A route with commands is a `question`: its handler makes the equivalent `own.Question`, and
   calls `access.question_rejection(request.rights, question, ())` first (example: `MemberRoutes.order`).

When a handler is called, the user is authenticated, the origin is checked (`browser_rules`), and the body is complete.
HEAD is served as GET. Routes with side effects are POST with JSON.
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
    """The member for HTTP sessions: `grid` as for all sessions, and what only these need."""

    @property
    def grid(self) -> Grid: ...

    @property
    def started(self) -> bool:
        """Whether the member can be asked; before that only open routes are served."""

    @property
    def asks_credentials(self) -> bool: ...

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        """Like `Grid.log_in`; also accepts `http.token`."""

    def health(self) -> Health: ...

    def metrics(self, accept: str, done: Callable[[bytes, str], None]) -> None:
        """Metrics as text for Prometheus, with the content type; `accept`: the client's header. `done` is called now or
        later; with nothing after an internal error.
        """

    def soon(self, deed: Callable[[], None]) -> None:
        """Run this in the next turn of the loop. It must not raise."""


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    """GET or POST."""
    path: str
    handler: RouteHandler

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


class Routes:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._whole: dict[tuple[str, str], Route] = {}
        self._prefixes: dict[tuple[str, str], Route] = {}
        for route in routes:
            known = self._prefixes if route.path.endswith("/*") else self._whole
            key = (route.method, route.path.removesuffix("*"))
            assert key not in known, f"{route.name} is there twice"
            known[key] = route

    def find(self, method: str, path: str) -> Route | None:
        method = "GET" if method == "HEAD" else method
        whole = self._whole.get((method, path))
        if whole is not None:
            return whole
        fitting = [key for key in self._prefixes if key[0] == method and path.startswith(key[1])]
        return self._prefixes[max(fitting, key=len)] if fitting else None

    def methods(self, path: str) -> list[str]:
        return [method for method in ("GET", "HEAD", "POST") if self.find(method, path) is not None]

    def __iter__(self) -> Iterator[Route]:
        return iter([*self._whole.values(), *self._prefixes.values()])
