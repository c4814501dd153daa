"""The client for asyncio."""

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from ._answer import Answer, ProtocolError
from ._calls import DEFAULT_URL, Behind, Calls, Flow, Lease, Send, holder_of, no_permit, request_of
from ._permit import PermitState, ReservationState
from ._sync import KEPT, MOST
from ._values import HeadgateError, Json, OnFailure, Verdict, What, denied

T = TypeVar("T")
P = ParamSpec("P")


class _Connection(asyncio.Protocol):
    """A connection with one call at a time."""

    def __init__(self) -> None:
        self.used = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer = Answer()
        self._call: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop is no asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._call is None or self._call.done():
            self.close()  # Nobody has asked for it.
            return
        try:
            if self._answer.feed(data):
                self._call.set_result(self._answer)
        except ProtocolError as err:
            self._call.set_exception(err)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, err: Exception | None) -> None:
        self._transport = None
        if self._call is not None and not self._call.done():
            self._call.set_exception(err or ConnectionError("the connection was closed before the answer"))

    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and time.monotonic() - self.used <= KEPT

    async def ask(self, request: bytes) -> Answer:
        if self._transport is None:
            raise ConnectionError("the connection was closed before the call")
        self._answer, self._call = Answer(), asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._call
        finally:
            self._call = None
            self.used = time.monotonic()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Pool:
    """The connections of one event loop in one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.pid = loop, os.getpid()
        self.idle: deque[_Connection] = deque()
        self.slots = asyncio.Semaphore(MOST)


class AsyncClient:
    """Asks a Headgate service. Tasks of one event loop at a time may share it.

    It is `Client` for asyncio, with the same calls. At most 64 calls are under way at a time; further ones wait, within
    their ``timeout``. If a task is cancelled, the connection of its call is closed. What the call took stays taken.
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
        self._pool: _Pool | None = None
        self._behind: set[asyncio.Task[object]] = set()  # what ends after the task that has begun it

    async def check(
        self,
        what: What,
        key: str | None = None,
        *,
        cost: int | None = None,
        id: str | None = None,
        lifetime: float | None = None,
        outcome: bool = False,
    ) -> Verdict:
        """See `Client.check`."""
        return await self._run(self._calls.check(request_of(what, key, cost, id, lifetime), outcome))

    async def peek(self, what: What, key: str | None = None, *, cost: int | None = None) -> Verdict:
        """See `Client.peek`."""
        return await self._run(self._calls.peek(request_of(what, key, cost)))

    async def refund(
        self, what: What, key: str | None = None, *, cost: int | None = None, at: int | None = None
    ) -> Verdict:
        """See `Client.refund`."""
        return await self._run(self._calls.refund(request_of(what, key, cost), at))

    async def reset(self, what: What, key: str | None = None) -> list[str]:
        """See `Client.reset`."""
        return await self._run(self._calls.reset(request_of(what, key)))

    async def explain(self, descriptor: Mapping[str, str], *, cost: int | None = None) -> Json:
        """See `Client.explain`."""
        return await self._run(self._calls.explain(descriptor, cost))

    def reserve(
        self,
        what: What,
        key: str | None = None,
        *,
        cost: int | None = None,
        id: str | None = None,
        lifetime: float | None = None,
    ) -> "_Opening[AsyncReservation]":
        """See `Client.reserve`. It is awaited, or entered with ``async with``."""

        async def reserve() -> AsyncReservation:
            verdict = await self._run(self._calls.reserve(request_of(what, key, cost, id, lifetime)))
            return AsyncReservation(self, verdict, cost)

        return _Opening(reserve())

    async def settle(self, reservation: str, *, cost: int | None = None, status: int | None = None) -> Verdict:
        """See `Client.settle`."""
        return await self._run(self._calls.settle(reservation, cost, status))

    async def cancel(self, reservation: str) -> Verdict:
        """See `Client.cancel`."""
        return await self._run(self._calls.cancel(reservation))

    def acquire(
        self,
        rule: str,
        key: str = "",
        *,
        cost: int | None = None,
        ttl: float | None = None,
        wait: float = 0.0,
        holder: str | None = None,
    ) -> "_Opening[AsyncPermit]":
        """See `Client.acquire`. It is awaited, or entered with ``async with``; a task renews the permit."""
        who = holder_of(rule, key, holder)

        async def acquire() -> AsyncPermit:
            try:
                return AsyncPermit(self, await self._run(self._calls.acquire(who, cost, ttl, wait)))
            except asyncio.CancelledError:
                # The service may have granted it, or keep a place in line.
                self._finish(self._run(self._calls.release(who)))
                raise

        return _Opening(acquire())

    def limit(
        self, what: What, *, key: Callable[P, str] | None = None, cost: int | None = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """See `Client.limit`. The functions are coroutine functions."""

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            @wraps(function)
            async def limited(*args: P.args, **kwargs: P.kwargs) -> T:
                verdict = await self.check(what, key(*args, **kwargs) if key else None, cost=cost)
                if not verdict:
                    raise denied(verdict)
                return await function(*args, **kwargs)

            return limited

        return decorate

    async def aclose(self) -> None:
        """Wait for what is still given back, and close the connections that no call uses."""
        while self._behind:
            await asyncio.wait(self._behind)
        if self._pool is not None:
            while self._pool.idle:
                self._pool.idle.pop().close()
            await asyncio.sleep(0)  # for the transports to close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _finish(self, work: Coroutine[Any, Any, object]) -> "asyncio.Task[object]":
        """Have work done that must not end with the task that asks for it."""
        task = asyncio.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task

    async def _run(self, flow: Flow[T]) -> T:
        step = next(flow)
        try:
            while True:
                if isinstance(step, Send):
                    try:
                        answer = await self._send(step)
                    except (OSError, ProtocolError) as err:
                        step = flow.throw(err)
                    else:
                        step = flow.send(answer)
                else:
                    if isinstance(step, Behind):
                        self._finish(self._run(step.flow))
                    else:
                        await asyncio.sleep(step.seconds)
                    step = next(flow)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, call: Send) -> Answer:
        loop = asyncio.get_running_loop()
        pool = self._pool
        if pool is None or pool.loop is not loop or pool.pid != os.getpid():
            # The connections of another loop end with it.
            pool = self._pool = _Pool(loop)
        async with asyncio.timeout(max(call.deadline - time.monotonic(), 0)):
            if call.held:
                return await self._ask(pool, call)
            async with pool.slots:
                return await self._ask(pool, call)

    async def _ask(self, pool: _Pool, call: Send) -> Answer:
        connection = await self._connect(pool, call.deadline)
        try:
            answer = await connection.ask(call.request)
        except BaseException:
            connection.close()
            raise
        if answer.reusable and len(pool.idle) < MOST:
            pool.idle.append(connection)
        else:
            connection.close()
        return answer

    async def _connect(self, pool: _Pool, deadline: float) -> _Connection:
        while pool.idle:
            connection = pool.idle.pop()
            if connection.alive():
                return connection
            connection.close()
        target = self._calls.target
        name = target.host if self._tls else None
        failed: OSError = OSError(f"{target.host} has no address")
        found = await pool.loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        for tried, (*_, address) in enumerate(found):
            try:
                # One that does not answer leaves the others their parts of the time.
                async with asyncio.timeout((deadline - time.monotonic()) / (len(found) - tried)):
                    _, made = await pool.loop.create_connection(
                        _Connection, str(address[0]), int(address[1]), ssl=self._tls, server_hostname=name
                    )
                    return made
            except OSError as err:
                failed = err
        raise failed


class _Entered(Protocol):
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None: ...


E = TypeVar("E", bound=_Entered)


class _Opening(Generic[E]):
    """What may be awaited, or entered at once: ``await client.acquire(…)``, ``async with client.acquire(…)``."""

    def __init__(self, opening: Coroutine[Any, Any, E]) -> None:
        self._opening = opening
        self._opened: E | None = None

    def __await__(self) -> Generator[Any, None, E]:
        return self._opening.__await__()

    async def __aenter__(self) -> E:
        self._opened = await self._opening
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, err, trace)


class AsyncPermit(PermitState):
    """A permit, which a task renews until it is released or lost.

    In an ``async with``, the body is cancelled when the permit is lost, and a `PermitLostError` takes the place of the
    cancellation, as with `asyncio.timeout`.
    """

    def __init__(self, client: AsyncClient, lease: Lease) -> None:
        super().__init__(lease)
        self._client = client
        self._owner: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._renewal = asyncio.create_task(self._renew(), name="headgate-permit") if lease.granted else None

    async def release(self) -> bool:
        """Give the permit back, and say whether the service has heard it. Otherwise it ends by itself."""
        renewal, self._renewal = self._renewal, None
        if renewal is None or not self._ours:
            return True
        renewal.cancel()
        # Whoever is cancelled meanwhile still gives it back.
        released = self._client._finish(self._client._run(self._client._calls.release(self._lease.who, self.epoch)))
        return bool(await asyncio.shield(released))

    async def _renew(self) -> None:
        await self._client._run(self._client._calls.renew(self._lease))
        if self._owner is not None:
            self._cancelled = True
            self._owner.cancel()

    async def __aenter__(self) -> Self:
        if not self.allowed:
            raise no_permit(self._lease)
        self._owner = asyncio.current_task()
        self._cancelling = self._owner.cancelling() if self._owner else 0
        if self.lost:
            self._cancelled = True
            if self._owner is not None:
                self._owner.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        owner, self._owner = self._owner, None
        if (
            self._cancelled
            and owner is not None
            and owner.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            await self.release()
            try:
                self.check()
            except HeadgateError as lost:
                raise lost from err
        await self.release()


class AsyncReservation(ReservationState):
    """A reservation. At the end of an ``async with`` it is settled, or cancelled if the work has failed."""

    def __init__(self, client: AsyncClient, verdict: Verdict, estimate: int | None) -> None:
        super().__init__(verdict, estimate)
        self._client = client

    async def settle(self, *, cost: int | None = None, status: int | None = None) -> Verdict:
        """Say what the work has cost, or how it ended."""
        self._done = True
        return self.verdict if self.id is None else await self._client.settle(self.id, cost=cost, status=status)

    async def cancel(self) -> Verdict:
        """Give all of it back."""
        self._done = True
        return self.verdict if self.id is None else await self._client.cancel(self.id)

    async def __aenter__(self) -> Self:
        if not self.allowed:
            raise denied(self.verdict)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._done:
            return
        try:
            if self._cancelled(err is not None):
                await asyncio.shield(self._client._finish(self.cancel()))
            elif self.cost is not None or self.status is not None:
                await asyncio.shield(self._client._finish(self.settle(cost=self.cost, status=self.status)))
        except HeadgateError:
            # What the work has raised counts more than what it costs.
            if err is None and self._client._calls.on_failure == "raise":
                raise
