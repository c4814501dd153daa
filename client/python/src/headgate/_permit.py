"""What permits and reservations of threads and of asyncio have in common."""

import os

from ._calls import Lease
from ._values import PermitLostError, Verdict


class PermitState:
    """A permit, or the answer that there is none. It is true if the work may begin."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @property
    def allowed(self) -> bool:
        """The work may begin: with a permit, in shadow, or because the rule or ``on_failure`` lets it."""
        return self._lease.allowed

    @property
    def shadow(self) -> bool:
        """The rule only measures, and there is no permit."""
        return self._lease.shadow

    @property
    def holder(self) -> str:
        """Whose permit it is."""
        return self._lease.who["holder"]

    @property
    def epoch(self) -> int:
        """With `slots`, the fence: a larger epoch of a slot is the later holder. 0 without a permit."""
        return self._lease.epoch

    @property
    def slots(self) -> tuple[int, ...]:
        """The places that the permit has among those of its key."""
        return self._lease.slots

    @property
    def in_use(self) -> int:
        """How many units are in use."""
        return self._lease.in_use

    @property
    def limit(self) -> int:
        """How many units there are."""
        return self._lease.limit

    @property
    def retry_after(self) -> float:
        """Seconds until it is worth asking again, if it was not allowed."""
        return self._lease.retry_after

    @property
    def lost(self) -> bool:
        """Whether the permit was lost. It looks at the clock, as for a process that was stopped."""
        return self._lease.lost

    def check(self) -> None:
        """Raise a `PermitLostError` if the permit was lost. Call it before what others must not do at the same time."""
        if self.lost:
            raise PermitLostError(f"the permit was lost: {self._lease.why}")

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def _ours(self) -> bool:
        # A process that was forked does not hold the permit, and must not give it back.
        return self._lease.granted and self._lease.pid == os.getpid()


class ReservationState:
    """A reservation, or the answer that there is none. It is true if the work may begin."""

    def __init__(self, verdict: Verdict, estimate: int | None) -> None:
        self.verdict = verdict
        self.cost = estimate
        """What the work has cost. Assign it before the end of the ``with``; until then it is the estimate."""
        self.status: int | None = None
        """The HTTP status that the work ended with, for rules that charge by the outcome."""
        self._estimate = estimate
        self._done = verdict.reservation is None

    @property
    def allowed(self) -> bool:
        """The work may begin."""
        return self.verdict.allowed

    @property
    def id(self) -> str | None:
        """What settles it, in any process; None if there is nothing to settle."""
        return self.verdict.reservation

    def __bool__(self) -> bool:
        return self.allowed

    def _cancelled(self, failed: bool) -> bool:
        # Work that failed before it said what it has cost, has cost nothing.
        return failed and self.status is None and self.cost == self._estimate
