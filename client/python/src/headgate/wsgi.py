"""Middleware for WSGI: Flask, Django."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ._calls import DEFAULT_URL
from ._guard import LOG, UNMATCHED, Guard, Refused, mistaken, unanswered
from ._sync import Client
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

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

Environ = dict[str, Any]


class Limit:
    """Lets through what a Headgate service admits: ``app.wsgi_app = Limit(app.wsgi_app, route=routes.flask(app))``.

    The options are those of `headgate.asgi.Limit`, with functions of the environ, and ``client`` is a `Client`. The
    verdict is in ``environ["headgate.verdict"]``. Answers are streamed as they are.
    """

    def __init__(
        self,
        app: "WSGIApplication",
        *,
        client: Client | None = None,
        url: str = DEFAULT_URL,
        timeout: float = 1.0,
        trust: Sequence[str] = (),
        source: str = "x-forwarded-for",
        route: Callable[[Environ], str] | None = None,
        entries: Callable[[Environ], Mapping[str, object]] | None = None,
        cost: int | Callable[[Environ], int] = 1,
        on_failure: OnFailure = "allow",
        max_delay: float = 30.0,
    ) -> None:
        self.app = app
        self.client = client or Client(url, timeout=timeout)
        self._guard = Guard(trust, source, max_delay)
        self._route, self._entries, self._cost, self._on_failure = route, entries, cost, on_failure
        if route is None:
            LOG.warning("without route=, such as headgate.routes.flask(app), no rule that matches a route binds")

    def __call__(self, environ: Environ, start_response: "StartResponse") -> Iterable[bytes]:
        """Serve a request."""
        try:
            verdict = self._decide(environ)
        except Refused as err:
            return _refuse(environ, start_response, err.problem, {})
        if not verdict:
            return _refuse(environ, start_response, verdict.problem or {}, verdict.headers)
        environ["headgate.verdict"] = verdict
        return self._serve(verdict, environ, start_response)

    def _decide(self, environ: Environ) -> Verdict:
        cost = self._cost(environ) if callable(self._cost) else self._cost
        if cost == 0:
            return Verdict(allowed=True)
        more = self._entries(environ) if self._entries is not None else {}
        path = _text(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))
        route = self._route(environ) if self._route is not None else UNMATCHED
        peer = environ.get("REMOTE_ADDR") or None
        descriptor = self._guard.describe(environ["REQUEST_METHOD"], path, route, peer, _headers(environ), more)
        try:
            verdict = self.client.check(descriptor, cost=cost, outcome=True)
        except RequestError as err:
            raise mistaken(err) from err
        except UnavailableError as err:
            return unanswered(err, self._on_failure)
        if verdict and verdict.delay > self._guard.max_delay:
            with suppress(HeadgateError):  # Otherwise it stays charged, as it would after a crash.
                if verdict.reservation is None:
                    self.client.refund(descriptor, cost=cost, at=verdict.at)
                else:
                    self.client.cancel(verdict.reservation)
            return self._guard.too_slow(verdict)
        if verdict and verdict.delay > 0:
            time.sleep(verdict.delay)
        return verdict

    def _serve(self, verdict: Verdict, environ: Environ, start_response: "StartResponse") -> Iterable[bytes]:
        status, settled = 0, False

        def starting(line: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Callable[[bytes], object]:
            nonlocal status
            status = int(line[:3])
            return start_response(line, [*headers, *verdict.headers.items()], exc_info)

        def settle() -> None:
            nonlocal settled
            if not settled and verdict.reservation is not None:
                settled = True
                with suppress(HeadgateError):  # Otherwise it stays charged until the reservation ends.
                    self.client.settle(verdict.reservation, status=status or 500)

        try:
            parts = self.app(environ, starting)
        except DeniedError as err:
            # A function was limited by itself.
            body, status, headers = err.response()
            settle()
            return _answer(environ, start_response, body, status, headers)
        except BaseException:
            settle()
            raise
        # What is not to be settled is handed on as it is, such as a file that the server sends by itself.
        return parts if verdict.reservation is None else _Settled(parts, settle)


class _Settled:
    """An answer that is settled before the client has it, and so before the client asks again."""

    def __init__(self, parts: Iterable[bytes], settle: Callable[[], None]) -> None:
        self._parts, self._settle = parts, settle

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self._settle()
            yield part
        self._settle()

    def close(self) -> None:
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
        finally:
            self._settle()


def _text(latin: str) -> str:
    return latin.encode("latin-1").decode("utf-8", "replace")


def _headers(environ: Environ) -> dict[str, list[str]]:
    headers = {
        name[5:].lower().replace("_", "-"): [value] for name, value in environ.items() if name.startswith("HTTP_")
    }
    # Servers join the lines of a header by commas, and several keys are to be told from one.
    if "," in headers.get("x-api-key", [""])[0]:
        headers["x-api-key"] = headers["x-api-key"][0].split(",")
    return headers


def _refuse(environ: Environ, start: "StartResponse", problem: Json, headers: Mapping[str, str]) -> list[bytes]:
    return _answer(environ, start, *refusal(problem, headers))


def _answer(
    environ: Environ, start: "StartResponse", body: bytes, status: int, headers: Mapping[str, str]
) -> list[bytes]:
    start(f"{status} {HTTPStatus(status).phrase}", list(headers.items()))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
