"""Every call as a flow: a generator that yields what is to be done, and is sent the result.

A flow does no input or output, so that one text serves threads and asyncio: `_sync` and `_async` each run it in their
own way.
"""

import json
import os
import random
import socket
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ._answer import Answer, ProtocolError
from ._values import (
    DeniedError,
    HeadgateError,
    Json,
    OnFailure,
    RequestError,
    UnavailableError,
    Verdict,
    What,
    milliseconds,
    mistakes,
    seconds,
    undecided,
    verdict_of,
)

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request, and answer with its `Answer`. What goes wrong is thrown into the flow."""

    request: bytes
    deadline: float
    """By `time.monotonic`."""
    held: bool = False
    """The service may hold the call back, so that it does not count among those under way."""


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Behind:
    """Run a flow to its end, and do not wait for it."""

    flow: "Flow[bool]"


T = TypeVar("T")
Flow = Generator[Send | Sleep | Behind, Any, T]

Answered = tuple[int, dict[str, str], dict[str, Any]]
"""Status, headers and body."""

# A call that takes nothing twice is repeated, within its deadline and a budget: a tenth of the calls, and ten besides.
# So a service that is down is asked little more often than by a client without retries.
TRIES = 3
SHARE, FLOOR, HOARD = 0.1, 10.0, 110.0
BACKOFF = 0.1

# For how long one call may be held back by the service, and a place in line is kept until the next one.
HOLD, KEEP = 20.0, 2.0
# A permit counts as lost this part of its time before its lease ends: for what the work needs to stop.
MARGIN = 0.1


@dataclass(frozen=True, slots=True)
class Target:
    """Where the service is."""

    host: str
    port: int
    secure: bool
    authority: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Target":
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")  # as the search for its address will
        except ValueError as err:
            raise ValueError(f"headgate: url is {url!r}: {err}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"headgate: url is {url!r}, must begin with http:// or https:// and have a host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("headgate: url has a user, a password, a query or a fragment, must have none of them")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), secure, parts.netloc, parts.path.rstrip("/"))


class Lease:
    """A permit as it stands. The flow that renews it writes it, and whoever holds it reads it."""

    def __init__(self, who: dict[str, str], ttl: float | None, body: Json, began: float) -> None:
        self.who, self.asked = who, ttl
        self.allowed: bool = body["allowed"]
        self.shadow: bool = body.get("shadow", False)
        self.in_use: int = body["in_use"]
        self.limit: int = body["limit"]
        self.retry_after = seconds(body["retry_after_ms"])
        self.granted = body.get("permit") is not None
        self.epoch, self.slots, self.ttl, self.ends = 0, (), 0.0, float("inf")  # type: int, tuple[int, ...], float, float
        self.why = ""  # it was lost
        self.pid = os.getpid()
        if self.granted:
            self.epoch, self.slots = body["permit"]["epoch"], tuple(body["permit"]["slots"])
            self.keep(body["permit"], began)

    def keep(self, permit: Json, began: float) -> None:
        """Note how long it lasts, counted from before the call that was answered with it."""
        self.ttl = seconds(permit["ttl_ms"])
        self.ends = began + seconds(permit["expires_in_ms"]) - self.ttl * MARGIN

    @property
    def lost(self) -> bool:
        # A process that was stopped finds out by the clock.
        if not self.why and time.monotonic() >= self.ends:
            self.why = "it could not be renewed in time"
        return bool(self.why)


class Calls:
    """The flows of all calls to one service."""

    def __init__(self, url: str, timeout: float, on_failure: OnFailure) -> None:
        if not 0.001 <= timeout <= 60:
            raise ValueError(f"headgate: timeout is {timeout}, must be 0.001 to 60 seconds")
        if on_failure not in ("raise", "allow", "deny"):
            raise ValueError(f"headgate: on_failure is {on_failure!r}, must be raise, allow or deny")
        self.url, self.target, self.timeout, self.on_failure = url, Target.of(url), timeout, on_failure
        self._spare = FLOOR  # retries; races between threads do not matter

    def post(
        self, path: str, body: dict[str, Any], *, repeat: bool, within: float = 0.0, hold: float = 0.0
    ) -> Flow[Answered]:
        """Make a call, whose deadline covers all of it: waiting for a connection, and retries."""
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        request = (
            f"POST {self.target.prefix}{path} HTTP/1.1\r\nHost: {self.target.authority}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        ).encode() + data
        within = (within or self.timeout) + hold
        deadline = time.monotonic() + within
        if repeat:
            self._spare = min(self._spare + SHARE, HOARD)
        tried = 0
        while True:
            tried += 1
            try:
                try:
                    answer: Answer = yield Send(request, deadline, hold > 0)
                except (OSError, ProtocolError) as cause:
                    why = f"within {within:g} s" if isinstance(cause, TimeoutError) else f"({cause})"
                    raise UnavailableError(f"{self.url} does not answer {why}") from cause
                return self._read(answer)
            except UnavailableError as err:
                wait = random.random() * BACKOFF * 2 ** (tried - 1)
                if err.retry_after:
                    wait = max(wait, err.retry_after * (1 + random.random() / 10))
                if not repeat or err.final or tried == TRIES or self._spare < 1 or time.monotonic() + wait >= deadline:
                    raise
                self._spare -= 1
            yield Sleep(wait)

    def _read(self, answer: Answer) -> Answered:
        try:
            body = json.loads(answer.body)
        except (ValueError, RecursionError):
            body = None
        status = answer.status
        if isinstance(body, dict) and status in (200, 403, 429):
            return status, answer.headers, body
        after = answer.headers.get("retry-after", "")
        # What stands between may answer in the place of the service, which never redirects.
        if not isinstance(body, dict) or 300 <= status < 400 or status == 503:
            strange = not isinstance(body, dict) or status != 503
            detail = body.get("detail") if isinstance(body, dict) else None
            raise UnavailableError(
                f"{self.url} cannot decide: {detail or f'status {status}'}",
                0 if strange else 503,
                float(after) if after.isascii() and after.isdigit() else 0.0,
                answer.headers.get("headgate-retry") == "no",
            )
        more = "".join(f"; {field} {detail}" for field, detail in mistakes(body))
        raise RequestError(f"{body.get('detail', f'status {status}')}{more}", status, body)

    # Decisions.

    def decide(self, path: str, request: dict[str, Any], *, repeat: bool) -> Flow[Verdict]:
        try:
            answered = yield from self.post(path, request, repeat=repeat)
            with self._understood():
                verdict = verdict_of(*answered)
                if verdict.allowed is not (verdict.status == 200):
                    raise TypeError("its status is that of another verdict")
                return verdict
        except UnavailableError as err:
            if self.on_failure == "raise":
                raise
            return undecided(err, self.on_failure)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, AttributeError) as cause:
            raise UnavailableError(f"{self.url} cannot decide: its answer is not that of a Headgate") from cause

    def check(self, request: dict[str, Any], outcome: bool) -> Flow[Verdict]:
        path = "/v1/check?status=true&at=true" + ("&outcome=true" if outcome else "")
        return self.decide(path, request, repeat="id" in request)

    def peek(self, request: dict[str, Any]) -> Flow[Verdict]:
        return self.decide("/v1/peek?status=true", request, repeat=True)

    def reserve(self, request: dict[str, Any]) -> Flow[Verdict]:
        return self.decide("/v1/reserve?status=true&at=true", request, repeat="id" in request)

    def tell(self, path: str, request: dict[str, Any], *, repeat: bool) -> Flow[Verdict]:
        """A call whose answer is the state of the limits, and nothing that `on_failure` could decide."""
        answered = yield from self.post(path, request, repeat=repeat)
        with self._understood():
            return verdict_of(*answered)

    def refund(self, request: dict[str, Any], at: int | None) -> Flow[Verdict]:
        return self.tell("/v1/refund", request if at is None else {**request, "at": at}, repeat=False)

    def settle(self, reservation: str, cost: int | None, status: int | None) -> Flow[Verdict]:
        body = {"reservation": reservation, "cost": cost, "status": status}
        return self.tell("/v1/settle", {k: v for k, v in body.items() if v is not None}, repeat=True)

    def cancel(self, reservation: str) -> Flow[Verdict]:
        return self.tell("/v1/cancel", {"reservation": reservation}, repeat=True)

    def reset(self, request: dict[str, Any]) -> Flow[list[str]]:
        _, _, body = yield from self.post("/v1/reset", request, repeat=True)
        with self._understood():
            return list(body["reset"])

    def explain(self, descriptor: Mapping[str, str], cost: int | None) -> Flow[Json]:
        request: dict[str, Any] = {"descriptor": dict(descriptor)}
        _, _, body = yield from self.post(
            "/v1/explain", request if cost is None else {**request, "cost": cost}, repeat=True
        )
        return body

    # Permits.

    def acquire(self, who: dict[str, str], cost: int | None, ttl: float | None, wait: float) -> Flow[Lease]:
        if not 0 <= wait <= 600:
            raise ValueError(f"headgate: wait is {wait}, must be 0 to 600 seconds")
        until = time.monotonic() + wait
        try:
            while True:
                began = time.monotonic()
                left = max(until - began, 0.0)
                hold = min(left, HOLD)
                body = {**who, "wait_ms": milliseconds(hold), "keep_ms": milliseconds(KEEP) if left > hold else 0}
                if cost is not None:
                    body["cost"] = cost
                if ttl is not None:
                    body["ttl_ms"] = milliseconds(ttl)
                _, _, answer = yield from self.post("/v1/permits/acquire", body, repeat=True, hold=hold)
                with self._understood():
                    lease = Lease(who, ttl, answer, began)
                if lease.allowed or not answer.get("waiting"):
                    return lease
                yield Sleep(min(lease.retry_after, max(until - time.monotonic(), 0.0)))
        except UnavailableError as err:
            # The service may have granted it, or keep a place in line.
            yield Behind(self.release(who))
            if self.on_failure == "raise":
                raise
            verdict = undecided(err, self.on_failure)
            nothing = {"in_use": 0, "limit": 0, "retry_after_ms": milliseconds(verdict.retry_after)}
            return Lease(who, ttl, {"allowed": verdict.allowed, **nothing}, began)

    def renew(self, lease: Lease) -> Flow[None]:
        """Renew a permit until it is lost."""
        wait = lease.ttl / 6
        while not lease.lost:
            left = max(lease.ends - time.monotonic(), 0.0)
            yield Sleep(min(wait * (1 - random.random() / 8), left / 2))
            began = time.monotonic()
            if lease.lost:
                return
            body = {**lease.who, "epoch": lease.epoch}
            if lease.asked is not None:
                body["ttl_ms"] = milliseconds(lease.asked)
            try:
                within = min(self.timeout, lease.ends - began)
                _, _, answer = yield from self.post("/v1/permits/renew", body, repeat=False, within=within)
                with self._understood():
                    lease.keep(answer["permit"], began)
                wait = lease.ttl / 3
            except RequestError as err:
                if err.status == 410:
                    lease.why = "it was revoked" if err.problem.get("revoked") else "the service knows no such permit"
            except HeadgateError:
                wait = min(max(lease.ttl / 20, 0.01), 1.0) * (0.5 + random.random())

    def release(self, who: dict[str, str], epoch: int | None = None) -> Flow[bool]:
        """Give a permit back, and say whether the service has heard it. Otherwise it ends by itself."""
        try:
            yield from self.post("/v1/permits/release", who if epoch is None else {**who, "epoch": epoch}, repeat=True)
        except HeadgateError:
            return False
        return True


def request_of(
    what: What, key: str | None = None, cost: int | None = None, id: str | None = None, lifetime: float | None = None
) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any]
    if isinstance(what, str):
        check = {"rule": what, "key": key or ""}
        body = {"checks": [check if cost is None else {**check, "cost": cost}]}
    elif key is not None:
        raise TypeError("headgate: a key belongs to the name of a rule; a descriptor and checks have their own")
    elif isinstance(what, Mapping):
        body = {"descriptor": dict(what)}
        if cost is not None:
            body["cost"] = cost
    else:
        if cost is not None:
            raise TypeError("headgate: each check has a cost of its own")
        body = {"checks": [{"rule": c.rule, "key": c.key, "cost": c.cost} for c in what]}
    if id is not None:
        body["id"] = id
    if lifetime is not None:
        body["lifetime_ms"] = milliseconds(lifetime)
    return body


def holder_of(rule: str, key: str, holder: str | None) -> dict[str, str]:
    """Whose permit it is."""
    return {"rule": rule, "key": key, "holder": holder or f"{socket.gethostname()[:64]}/{os.getpid()}/{uuid.uuid4()}"}


def no_permit(lease: Lease) -> DeniedError:
    return DeniedError(
        f"rule {lease.who['rule']}: {lease.in_use} of {lease.limit} in progress; try again in {lease.retry_after:g} s",
        lease.retry_after,
    )
