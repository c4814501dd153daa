"""The client for threads."""

import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from ._answer import Answer, ProtocolError
from ._calls import DEFAULT_URL, Behind, Calls, Flow, Lease, Send, Target, holder_of, no_permit, request_of
from ._permit import PermitState, ReservationState
from ._values import HeadgateError, Json, OnFailure, Verdict, What, denied

T = TypeVar("T")
P = ParamSpec("P")

# How many connections are kept without a call, and for how long: less than what services and proxies keep them for,
# so that none is closed just when a call is sent.
MOST, KEPT = 64, 4.0


class _Connection:
    """A connection with one call at a time."""

    def __init__(self, target: Target, tls: ssl.SSLContext | None, deadline: float) -> None:
        self.used = time.monotonic()
        failed: OSError = OSError(f"{target.host} has no address")
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        for tried, (family, kind, protocol, _, address) in enumerate(found):
            self.socket = socket.socket(family, kind, protocol)
            try:
                # One that does not answer leaves the others their parts of the time.
                self.socket.settimeout(_left(deadline) / (len(found) - tried))
                self.socket.connect(address)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    self.socket.settimeout(_left(deadline))
                    self.socket = tls.wrap_socket(self.socket, server_hostname=target.host)
                return
            except OSError as err:
                self.socket.close()
                failed = err
        raise failed

    def alive(self) -> bool:
        """Whether nothing has arrived: the end, or what nobody has asked for."""
        if time.monotonic() - self.used > KEPT:
            return False
        try:
            self.socket.settimeout(0)
            self.socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        return False

    def ask(self, request: bytes, deadline: float) -> Answer:
        self.socket.settimeout(_left(deadline))
        self.socket.sendall(request)
        answer = Answer()
        while True:
            self.socket.settimeout(_left(deadline))
            if answer.feed(self.socket.recv(1 << 16)):
                self.used = time.monotonic()
                return answer


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


class Client:
    """Asks a Headgate service. Threads may share it.

    ``timeout`` is the time for a whole call, in seconds: connecting, asking, retries. ``on_failure`` says what becomes
    of `check`, `peek`, `reserve` and `acquire` while nobody answers. A process that was forked uses connections of its
    own.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout: float = 1.0,
        on_failure: OnFailure = "raise",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._calls = Calls(url, timeout, on_failure)
        self._tls = (tls or ssl.create_default_context()) if self._calls.target.secure else None
        self._idle: deque[_Connection] = deque()
        self._permits: set[Permit] = set()
        self._behind: set[threading.Thread] = set()  # give back what may have been granted
        self._pid = os.getpid()

    def check(
        self,
        what: What,
        key: str | None = None,
        *,
        cost: int | None = None,
        id: str | None = None,
        lifetime: float | None = None,
        outcome: bool = False,
    ) -> Verdict:
        """Take units from every limit that binds the request, or from none.

        ``check("mail", "ada")`` asks for a rule and a key, ``check({"user": "ada"})`` for the rules that bind a
        descriptor, and ``check([Check("mail", "ada"), Check("sms", "ada")])`` for several at once. With an ``id``, the
        call may be repeated without being charged twice, for ``lifetime`` seconds. With ``outcome``, a request is
        reserved if a rule charges by its status: `settle` the verdict's reservation with it.
        """
        return self._run(self._calls.check(request_of(what, key, cost, id, lifetime), outcome))

    def peek(self, what: What, key: str | None = None, *, cost: int | None = None) -> Verdict:
        """Say what `check` would say, and take nothing."""
        return self._run(self._calls.peek(request_of(what, key, cost)))

    def refund(self, what: What, key: str | None = None, *, cost: int | None = None, at: int | None = None) -> Verdict:
        """Give back what a check took at the time that its verdict names as ``at``."""
        return self._run(self._calls.refund(request_of(what, key, cost), at))

    def reset(self, what: What, key: str | None = None) -> list[str]:
        """Forget what was used, and return the rules whose counters were forgotten."""
        return self._run(self._calls.reset(request_of(what, key)))

    def explain(self, descriptor: Mapping[str, str], *, cost: int | None = None) -> Json:
        """Say which rules bind a request and why. It is for people, not for the path of requests."""
        return self._run(self._calls.explain(descriptor, cost))

    def reserve(
        self,
        what: What,
        key: str | None = None,
        *,
        cost: int | None = None,
        id: str | None = None,
        lifetime: float | None = None,
    ) -> "Reservation":
        """Take an estimate, to be settled when the cost is known. In a ``with``, a denial is a `DeniedError`."""
        verdict = self._run(self._calls.reserve(request_of(what, key, cost, id, lifetime)))
        return Reservation(self, verdict, cost)

    def settle(self, reservation: str, *, cost: int | None = None, status: int | None = None) -> Verdict:
        """Make the units of a reservation those that the work did cost, or that its status costs."""
        return self._run(self._calls.settle(reservation, cost, status))

    def cancel(self, reservation: str) -> Verdict:
        """Give all units of a reservation back."""
        return self._run(self._calls.cancel(reservation))

    def acquire(
        self,
        rule: str,
        key: str = "",
        *,
        cost: int | None = None,
        ttl: float | None = None,
        wait: float = 0.0,
        holder: str | None = None,
    ) -> "Permit":
        """Take a permit of a rule that bounds what is in progress, waiting for it up to ``wait`` seconds.

        It waits only if the rule has a ``wait``.

        A thread renews it until it is released. In a ``with``, a denial is a `DeniedError`.
        """
        lease = self._run(self._calls.acquire(holder_of(rule, key, holder), cost, ttl, wait))
        return Permit(self, lease)

    def limit(
        self, what: What, *, key: Callable[P, str] | None = None, cost: int | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Return a decorator: a call of the function is checked first, and a `DeniedError` if it is denied.

        ``key`` is called with the arguments of the function.
        """

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @wraps(function)
            def limited(*args: P.args, **kwargs: P.kwargs) -> T:
                verdict = self.check(what, key(*args, **kwargs) if key else None, cost=cost)
                if not verdict:
                    raise denied(verdict)
                return function(*args, **kwargs)

            return limited

        return decorate

    def close(self) -> None:
        """Give permits back and close the connections that no call uses. The client may go on to be used."""
        for permit in list(self._permits):
            permit.release()
        for thread in list(self._behind):
            thread.join()
        while self._idle:
            self._idle.pop().socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: Flow[T], sleep: Callable[[float], object] = time.sleep) -> T:
        step = next(flow)
        try:
            while True:
                if isinstance(step, Send):
                    try:
                        answer = self._send(step)
                    except (OSError, ProtocolError) as err:
                        step = flow.throw(err)
                    else:
                        step = flow.send(answer)
                else:
                    if isinstance(step, Behind):
                        self._begin(step.flow)
                    else:
                        sleep(step.seconds)
                    step = next(flow)
        except StopIteration as end:
            result: T = end.value
            return result

    def _begin(self, flow: Flow[bool]) -> None:
        def run() -> None:
            self._run(flow)
            self._behind.discard(thread)

        thread = threading.Thread(target=run, name="headgate-release", daemon=True)
        self._behind.add(thread)
        thread.start()

    def _send(self, call: Send) -> Answer:
        if self._pid != os.getpid():
            # The connections are the parent's: they are closed here, and stay open there.
            parents = self._idle
            self._idle, self._permits, self._behind, self._pid = deque(), set(), set(), os.getpid()
            for connection in parents:
                connection.socket.close()
        connection = self._connect(call.deadline)
        try:
            answer = connection.ask(call.request, call.deadline)
        except BaseException:
            connection.socket.close()
            raise
        if answer.reusable and len(self._idle) < MOST:
            self._idle.append(connection)
        else:
            connection.socket.close()
        return answer

    def _connect(self, deadline: float) -> _Connection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return _Connection(self._calls.target, self._tls, deadline)
            if connection.alive():
                return connection
            connection.socket.close()


class Permit(PermitState):
    """A permit, which a thread renews until it is released or lost."""

    def __init__(self, client: Client, lease: Lease) -> None:
        super().__init__(lease)
        self._client = client
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if lease.granted:
            client._permits.add(self)
            self._thread = threading.Thread(target=self._renew, name="headgate-permit", daemon=True)
            self._thread.start()

    def release(self) -> bool:
        """Give the permit back, and say whether the service has heard it. Otherwise it ends by itself."""
        self._client._permits.discard(self)
        if not self._ours or self._stop.is_set():
            return True
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        return self._client._run(self._client._calls.release(self._lease.who, self.epoch))

    def _renew(self) -> None:
        flow = self._client._calls.renew(self._lease)

        def sleep(seconds: float) -> None:
            if self._stop.wait(seconds):
                raise _Stopped

        try:
            self._client._run(flow, sleep)
        except _Stopped:
            flow.close()

    def __enter__(self) -> Self:
        if not self.allowed:
            raise no_permit(self._lease)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Stopped(Exception):
    """The permit was released."""


class Reservation(ReservationState):
    """A reservation. At the end of a ``with`` it is settled, or cancelled if the work has failed."""

    def __init__(self, client: Client, verdict: Verdict, estimate: int | None) -> None:
        super().__init__(verdict, estimate)
        self._client = client

    def settle(self, *, cost: int | None = None, status: int | None = None) -> Verdict:
        """Say what the work has cost, or how it ended."""
        self._done = True
        return self.verdict if self.id is None else self._client.settle(self.id, cost=cost, status=status)

    def cancel(self) -> Verdict:
        """Give all of it back."""
        self._done = True
        return self.verdict if self.id is None else self._client.cancel(self.id)

    def __enter__(self) -> Self:
        if not self.allowed:
            raise denied(self.verdict)
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, _: TracebackType | None) -> None:
        if self._done:
            return
        try:
            if self._cancelled(err is not None):
                self.cancel()
            elif self.cost is not None or self.status is not None:
                self.settle(cost=self.cost, status=self.status)
        except HeadgateError:
            # What the work has raised counts more than what it costs.
            if err is None and self._client._calls.on_failure == "raise":
                raise
