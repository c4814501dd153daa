"""What the middlewares for ASGI and WSGI have in common."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ._identity import Proxies, Unclear, api_key, hostname
from ._values import OnFailure, RequestError, UnavailableError, Verdict, undecided

LOG = logging.getLogger("headgate")

UNMATCHED = "unmatched"
"""The route of requests that no route serves, all of them together: a client cannot make up names."""

# How long a value may be for the service to count by it, in bytes.
_MAX_VALUE = 8192


class Refused(Exception):
    """The request is answered without a decision."""

    def __init__(self, status: int, title: str, detail: str = "") -> None:
        super().__init__(title)
        self.problem: dict[str, Any] = {"title": title, "status": status}
        if detail:
            self.problem["detail"] = detail


class Guard:
    """Turns a request into a descriptor."""

    def __init__(self, trust: Sequence[str], source: str, max_delay: float) -> None:
        self.proxies = Proxies(trust, source)
        self.max_delay = max_delay

    def describe(
        self,
        method: str,
        path: str,
        route: str,
        peer: str | None,
        headers: Mapping[str, Sequence[str]],
        more: Mapping[str, object],
    ) -> dict[str, str]:
        """The descriptor of a request; headers are lines by their names in lower case."""
        try:
            key = api_key(headers.get("authorization", ()), headers.get("x-api-key", ()))
            host = hostname((headers.get("host") or ("",))[0])
        except Unclear as err:
            raise Refused(400, "The request can be read in two ways", str(err)) from None
        facts: dict[str, object] = {
            "api_key": key,
            "ip": self.proxies.client(peer, headers.get(self.proxies.source, ())),
            "route": route,
            "method": method,
            "host": host,
            "path": path,
            **more,
        }
        descriptor = {name: str(value) for name, value in facts.items() if value not in (None, "")}
        for name, value in descriptor.items():
            if len(value) > _MAX_VALUE // 4 and len(value.encode("utf-8", "surrogatepass")) > _MAX_VALUE:
                raise Refused(431, "The request is too large", f"What it gives as its {name} is too long.")
        return descriptor

    def too_slow(self, verdict: Verdict) -> Verdict:
        """The denial in the place of an admission that would have to be held for too long."""
        wait = verdict.delay - self.max_delay
        return replace(
            verdict,
            allowed=False,
            retry_after=wait,
            status=429,
            headers={**verdict.headers, "retry-after": str(math.ceil(wait))},
            problem={
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "The assigned quota is exceeded",
                "status": 429,
                "detail": f"The request would wait for {verdict.delay:g} s, and may wait for {self.max_delay:g} s.",
                "retry_after_ms": math.ceil(wait * 1000),
            },
        )


def mistaken(err: RequestError) -> Refused:
    """A mistake in what was asked is the program's, and never lets a request in."""
    LOG.error("the service has refused what the middleware says of a request: %s", err)
    return Refused(500, "The request could not be handled")


def unanswered(err: UnavailableError, on_failure: OnFailure) -> Verdict:
    LOG.warning("no decision: %s", err)
    return undecided(err, on_failure)
