"""Middleware for ASGI: FastAPI, Starlette, Django, Litestar."""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from . import routes
from ._async import AsyncClient
from ._calls import DEFAULT_URL
from ._guard import Guard, Refused, mistaken, unanswered
from ._values import (
    DeniedError,
    HeadgateError,
    Json,
    OnFailure,
    RequestError,
    UnavailableError,
    Verdict,
    refusal,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[..., Awaitable[None]]  # Frameworks have types of their own for what it is called with.
Entries = Callable[[Scope], Mapping[str, object] | Awaitable[Mapping[str, object]]]


class Limit:
    """Lets through what a Headgate service admits: ``app.add_middleware(Limit, url="http://…", trust=["10.0.0.0/8"])``.

    - ``client``: an `AsyncClient` that there is already, instead of ``url`` and ``timeout``;
    - ``trust``, ``source``: the proxies that are believed when they name the client, and their header;
    - ``route``: the name of a request's route, by its scope; see `headgate.routes`;
    - ``entries``: more facts for the policy, by the scope, such as the user; it may be async;
    - ``cost``: units that a request takes: a number, or a function of the scope; 0 is not limited;
    - ``on_failure``: what becomes of requests while the service does not answer;
    - ``max_delay``: seconds that a request may be held for a leaky bucket.

    The verdict is in ``scope["headgate"]``. WebSockets pass, and bodies are not touched.
    """

    def __init__(
        self,
        app: App,
        *,
        client: AsyncClient | None = None,
        url: str = DEFAULT_URL,
        timeout: float = 1.0,
        trust: Sequence[str] = (),
        source: str = "x-forwarded-for",
        route: Callable[[Scope], str] = routes.starlette,
        entries: Entries | None = None,
        cost: int | Callable[[Scope], int] = 1,
        on_failure: OnFailure = "allow",
        max_delay: float = 30.0,
    ) -> None:
        self.app = app
        self.client = client or AsyncClient(url, timeout=timeout)
        self._own = client is None
        self._guard = Guard(trust, source, max_delay)
        self._route, self._entries, self._cost, self._on_failure = route, entries, cost, on_failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "lifespan" and self._own:
            try:
                return await self.app(scope, receive, send)
            finally:
                await self.client.aclose()
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            verdict = await self._decide(scope)
        except Refused as err:
            return await _refuse(scope, send, err.problem, {})
        if not verdict:
            return await _refuse(scope, send, verdict.problem or {}, verdict.headers)
        scope["headgate"] = verdict
        await self._serve(verdict, scope, receive, send)

    async def _decide(self, scope: Scope) -> Verdict:
        cost = self._cost(scope) if callable(self._cost) else self._cost
        if cost == 0:
            return Verdict(allowed=True)
        more: Mapping[str, object] = {}
        if self._entries is not None:
            entries = self._entries(scope)
            more = await entries if inspect.isawaitable(entries) else entries
        headers: dict[str, list[str]] = defaultdict(list)
        for name, value in scope["headers"]:
            headers[name.decode("latin-1").lower()].append(value.decode("latin-1"))
        peer = (scope.get("client") or (None,))[0]
        descriptor = self._guard.describe(scope["method"], scope["path"], self._route(scope), peer, headers, more)
        try:
            verdict = await self.client.check(descriptor, cost=cost, outcome=True)
        except RequestError as err:
            raise mistaken(err) from err
        except UnavailableError as err:
            return unanswered(err, self._on_failure)
        if verdict and verdict.delay > 0:
            return await self._hold(descriptor, cost, verdict)
        return verdict

    async def _hold(self, descriptor: dict[str, str], cost: int, verdict: Verdict) -> Verdict:
        """Wait for the delay of a leaky bucket. One that is too long, or cancelled, gives back what was taken."""
        try:
            if verdict.delay <= self._guard.max_delay:
                await asyncio.sleep(verdict.delay)
                return verdict
        except asyncio.CancelledError:
            self.client._finish(self._give_back(descriptor, cost, verdict))
            raise
        await self._give_back(descriptor, cost, verdict)
        return self._guard.too_slow(verdict)

    async def _give_back(self, descriptor: dict[str, str], cost: int, verdict: Verdict) -> None:
        with suppress(HeadgateError):  # Otherwise it stays charged, as it would after a crash.
            if verdict.reservation is None:
                await self.client.refund(descriptor, cost=cost, at=verdict.at)
            else:
                await self.client.cancel(verdict.reservation)

    async def _serve(self, verdict: Verdict, scope: Scope, receive: Receive, send: Send) -> None:
        added = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in verdict.headers.items()]
        begun = False

        async def begin(status: int) -> None:
            # It is settled before the client has its answer, and so before the client asks again.
            nonlocal begun
            begun = True
            if verdict.reservation is not None:
                await asyncio.shield(self.client._finish(self._settle(verdict.reservation, status)))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
                await begin(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except DeniedError as err:
            # A function was limited by itself.
            if begun:
                raise
            body, status, headers = err.response()
            await begin(status)
            await _answer(scope, send, body, status, headers)
        except Exception:
            if not begun:
                await begin(500)
            raise

    async def _settle(self, reservation: str, status: int) -> None:
        with suppress(HeadgateError):  # Otherwise it stays charged until the reservation ends.
            await self.client.settle(reservation, status=status)


async def _refuse(scope: Scope, send: Send, problem: Json, headers: Mapping[str, str]) -> None:
    await _answer(scope, send, *refusal(problem, headers))


async def _answer(scope: Scope, send: Send, body: bytes, status: int, headers: Mapping[str, str]) -> None:
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
