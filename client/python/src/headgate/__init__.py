"""Rate limits of a Headgate service.

`Client` is for threads, `AsyncClient` for asyncio. `headgate.asgi` and `headgate.wsgi` have the middleware.
"""

from ._async import AsyncClient, AsyncPermit, AsyncReservation
from ._sync import Client, Permit, Reservation
from ._values import (
    Check,
    Decision,
    DeniedBy,
    DeniedError,
    HeadgateError,
    PermitLostError,
    RequestError,
    UnavailableError,
    Verdict,
)

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "AsyncPermit",
    "AsyncReservation",
    "Check",
    "Client",
    "Decision",
    "DeniedBy",
    "DeniedError",
    "HeadgateError",
    "Permit",
    "PermitLostError",
    "RequestError",
    "Reservation",
    "UnavailableError",
    "Verdict",
]
