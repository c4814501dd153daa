"""What the service is asked, what it answers, and what can go wrong."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One rule, the key to count under, and how many units to take."""

    rule: str
    key: str = ""
    cost: int = 1


What = str | Mapping[str, str] | Sequence[Check]
"""What is asked about: a rule's name, with a key; a descriptor, such as ``{"user": "ada"}``; or several checks."""

OnFailure = Literal["raise", "allow", "deny"]
"""What becomes of a call while nobody answers: an `UnavailableError`, or a verdict without a decision."""


class HeadgateError(Exception):
    """Whatever goes wrong with a service."""


class RequestError(HeadgateError):
    """The service has refused the call as a mistake. Nothing was charged."""

    def __init__(self, message: str, status: int, problem: Json) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status: 409 for an id that belongs to another request, 410 for a permit that has ended."""
        self.problem = problem
        """The problem document (RFC 9457). Its ``errors`` name the fields."""

    @property
    def fields(self) -> list[str]:
        """The fields with mistakes, such as ``checks[0].cost``."""
        return [field for field, _ in mistakes(self.problem)]


def mistakes(problem: Json) -> list[tuple[str, str]]:
    """The fields with mistakes, and what is wrong with them. Another server may answer with anything."""
    errors = problem.get("errors")
    named = [e for e in errors if isinstance(e, dict) and "field" in e] if isinstance(errors, list) else []
    return [(str(e["field"]), str(e.get("detail", ""))) for e in named]


class UnavailableError(HeadgateError):
    """There is no decision. The call may have been charged: do not repeat it blindly."""

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0, final: bool = False) -> None:
        super().__init__(message)
        self.status = status
        """503 if the service says itself that its store does not answer; 0 if nobody answers in its name."""
        self.retry_after = retry_after
        """Seconds to wait before the service is asked again, or 0."""
        self.final = final
        """The service asks not to be asked again."""


class DeniedError(HeadgateError):
    """A denial, where there is no other way to say it: from a ``with``, or a decorated function."""

    def __init__(self, message: str, retry_after: float, verdict: "Verdict | None" = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds until it fits; `math.inf` if it never does."""
        self.verdict = verdict
        """The verdict; None for a permit."""

    def response(self) -> tuple[bytes, int, dict[str, str]]:
        """Body, status and headers to answer a client with, in the order in which Flask wants them."""
        if self.verdict is not None:
            return refusal(self.verdict.problem or {}, self.verdict.headers)
        wait = str(max(math.ceil(self.retry_after), 1))
        return refusal({"title": "Too much is in progress", "status": 429, "detail": str(self)}, {"retry-after": wait})


class PermitLostError(HeadgateError):
    """The permit was lost while the work went on: others may have it soon."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one limit. Times are in seconds."""

    rule: str
    limit: str
    algorithm: str
    allowed: bool
    capacity: int
    period: float
    remaining: int
    retry_after: float
    reset_after: float
    soft: bool = False
    shadow: bool = False
    source: str = "store"


@dataclass(frozen=True, slots=True)
class DeniedBy:
    """The limit that denied, or the entry of the deny list."""

    rule: str = ""
    limit: str = ""
    list: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for a request. Times are in seconds. It is true if the request is allowed."""

    allowed: bool
    retry_after: float = 0.0
    """Until the request fits, if nothing else comes: 0 if it does now, `math.inf` if it never will."""
    delay: float = 0.0
    """How long to hold an allowed request, for the pace of a leaky bucket."""
    decisions: tuple[Decision, ...] = ()
    denied_by: DeniedBy | None = None
    at: int = 0
    """The time of the decision by the store's clock, in microseconds, for a refund to name."""
    status: int = 200
    """200, 429, or 403 for the deny list."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers that tell the client of its limits, in the service's dialect."""
    problem: Json | None = None
    """The body to answer the client of a denied request with (RFC 9457)."""
    reservation: str | None = None
    expires_in: float = 0.0
    """How long the reservation can be settled."""
    error: UnavailableError | None = None
    """Why there is no decision, if ``on_failure`` decided."""

    def __bool__(self) -> bool:
        return self.allowed


def seconds(milliseconds: int) -> float:
    if not isinstance(milliseconds, int):
        raise TypeError("a time is not in whole milliseconds")
    return math.inf if milliseconds < 0 else milliseconds / 1000


def milliseconds(value: float) -> int:
    """Rounded up: waiting that long is enough."""
    return math.ceil(value * 1000 - 1e-6)


_FOR_CLIENTS = {"retry-after"} | {
    prefix + name for prefix in ("x-ratelimit-", "ratelimit-") for name in ("limit", "remaining", "reset", "warning")
}
_FOR_CLIENTS |= {"ratelimit", "ratelimit-policy"}

_FOR_PROBLEMS = ("type", "title", "status", "detail", "violated-policies", "retry_after_ms")


def verdict_of(status: int, headers: Mapping[str, str], body: Json) -> Verdict:
    problem: Json | None = None
    if status == 403:
        # The client is not to find its way around the list.
        problem = {"title": "The request is not allowed", "status": 403}
    elif status != 200:
        problem = {**{name: body[name] for name in _FOR_PROBLEMS if name in body}, "status": status}
    denied_by = body.get("denied_by")
    if not isinstance(body["allowed"], bool):
        raise TypeError("allowed is neither true nor false")
    return Verdict(
        allowed=body["allowed"],
        retry_after=seconds(body["retry_after_ms"]),
        delay=seconds(body["delay_ms"]),
        decisions=tuple(
            Decision(
                rule=d["rule"],
                limit=d["limit"],
                algorithm=d["algorithm"],
                allowed=d["allowed"],
                capacity=d["capacity"],
                period=seconds(d["period_ms"]),
                remaining=d["remaining"],
                retry_after=seconds(d["retry_after_ms"]),
                reset_after=seconds(d["reset_after_ms"]),
                soft=d.get("soft", False),
                shadow=d.get("shadow", False),
                source=d.get("source", "store"),
            )
            for d in body["decisions"]
        ),
        denied_by=None
        if denied_by is None
        else DeniedBy(denied_by.get("rule", ""), denied_by.get("limit", ""), denied_by.get("list", "")),
        at=body.get("at", 0),
        status=status,
        headers={name: value for name, value in headers.items() if name in _FOR_CLIENTS},
        problem=problem,
        reservation=body.get("reservation"),
        expires_in=seconds(body.get("expires_in_ms", 0)),
    )


UNAVAILABLE_FOR = 5
"""How long a client is told to wait when nothing could be decided, in seconds."""


def undecided(error: UnavailableError, on_failure: OnFailure) -> Verdict:
    """The verdict without a decision. A service that answers was told itself to let nothing pass."""
    if on_failure == "allow" and error.status == 0:
        return Verdict(allowed=True, error=error)
    return Verdict(
        allowed=False,
        retry_after=float(UNAVAILABLE_FOR),
        status=503,
        headers={"retry-after": str(UNAVAILABLE_FOR)},
        problem={
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Capacity is reduced for the moment",
            "status": 503,
            "detail": "The rate limiter could not decide on the request.",
            "retry_after_ms": UNAVAILABLE_FOR * 1000,
        },
        error=error,
    )


def denied(verdict: Verdict) -> DeniedError:
    by = verdict.denied_by
    what = "the rate limiter" if by is None else by.list or f"rule {by.rule}, {by.limit}"
    when = "it never fits" if verdict.retry_after == math.inf else f"it fits in {verdict.retry_after:g} s"
    return DeniedError(f"denied by {what}; {when}", verdict.retry_after, verdict)


def refusal(problem: Json, headers: Mapping[str, str]) -> tuple[bytes, int, dict[str, str]]:
    """An answer with a problem document: body, status, headers."""
    body = json.dumps(problem, ensure_ascii=False).encode() + b"\n"
    more = {
        "content-type": "application/problem+json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    return body, problem["status"], {**headers, **more}
