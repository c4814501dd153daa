"""What the vectors do not say: failures, permits, threads, processes and tasks."""

import asyncio
import json
import math
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import TIMEOUT, VECTORS, Service

from headgate import AsyncClient, Check, Client, DeniedError, PermitLostError, RequestError, UnavailableError, wsgi
from headgate._calls import Calls, Send

POLICY = """
rules:
  - name: mail
    match: { user: present }
    per: [user]
    algorithm: sliding_window
    limits: [3 per 1h]
  - name: many
    per: all
    algorithm: sliding_window
    limits: [1000 per 1h]
    match: { many: present }
  - name: report
    match: { tenant: present }
    per: [tenant]
    in_progress: { limit: 1, shared: true, ttl: 1h, wait: 20s, queue: 10 }
"""


@pytest.fixture
def server(service: Callable[..., Service]) -> Iterator[Service]:
    started = service(POLICY, "--clock", "manual")
    yield started
    started.advance("24h")


def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_is_asked(server: Service) -> None:
    with Client(server.url, timeout=TIMEOUT) as client:
        assert client.check("mail", "ann", cost=2).decisions[0].remaining == 1
        assert client.check({"user": "ann"}).decisions[0].remaining == 0
        both = client.check([Check("mail", "ann"), Check("mail", "bob")])
        assert (bool(both), both.denied_by and both.denied_by.rule, both.retry_after) == (False, "mail", 3600)
        assert client.check("mail", "bob", cost=4).retry_after == math.inf
        assert [rule["binds"] for rule in client.explain({"user": "ann"})["rules"]] == [True, False, False]
        with pytest.raises(TypeError, match="a key belongs to the name of a rule"):
            client.check({"user": "ann"}, "ann")
        with pytest.raises(TypeError, match="a cost of its own"):
            client.check([Check("mail", "ann")], cost=2)
        with pytest.raises(RequestError, match=r"not UTF-8"):
            client.check("mail", "\udc80")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1",
        "nothing",
        "http://",
        "http://u@127.0.0.1",
        "http://127.0.0.1?a",
        "http://127.0.0.1#a",
        "http://127.0.0.1:99999",
        "http://a..b",
    ],
)
def test_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(ValueError, match="headgate: url"):
        Client(url)


def test_nobody_answers() -> None:
    url = nobody()
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        Client(url).check("mail", "ann")
    assert caught.value.status == 0
    for policy, allowed in (("allow", True), ("deny", False)):
        client = Client(url, on_failure=policy)  # type: ignore[arg-type]
        verdict = client.check("mail", "ann")
        assert (verdict.allowed, isinstance(verdict.error, UnavailableError)) == (allowed, True)
        assert client.peek("mail", "ann").allowed is allowed
        assert client.acquire("report", "acme").allowed is allowed
        assert client.reserve("mail", "ann", cost=1).allowed is allowed
        with pytest.raises(UnavailableError):
            client.refund("mail", "ann")
    assert asyncio.run(AsyncClient(url, on_failure="allow").check("mail", "ann")).allowed
    with pytest.raises(ValueError, match="on_failure"):
        Client(url, on_failure="open")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        Client(url, timeout=0)


def test_a_service_that_denies_is_heeded() -> None:
    """A 503 in the service's own words was decided there, whatever on_failure says."""
    calls = Calls("http://127.0.0.1:1", 1.0, "allow")
    flow = calls.check({"descriptor": {}}, False)
    next(flow)
    with pytest.raises(StopIteration) as end:
        flow.send(answered(503, b'{"title":"t","status":503,"detail":"the store did not answer"}'))
    assert (end.value.value.allowed, end.value.value.status) == (False, 503)


def answered(status: int, body: bytes, **headers: str) -> Any:
    from headgate._answer import Answer

    answer = Answer()
    answer.status, answer.body, answer.headers = status, body, headers
    return answer


def test_an_answer_about_something_else_is_none() -> None:
    """Neither what begins like JSON and has no end, nor an object that is another one, is an exception of its own."""
    for body in (b"[" * 100_000, b"{}", b'{"allowed":true,"permit":{}}'):
        calls = Calls("http://127.0.0.1:1", 0.001, "raise")
        who = {"rule": "report", "key": "", "holder": "h"}
        for flow in (
            calls.check({}, False),
            calls.settle("r", 1, None),
            calls.reset({}),
            calls.acquire(who, None, None, 0),
        ):
            with pytest.raises(UnavailableError) as caught:
                while isinstance(next(flow), Send):
                    flow.send(answered(200, body))
            assert caught.value.status == 0


def test_the_middleware_says_in_the_log_what_went_wrong(server: Service, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    def start(line: str, *_: Any) -> Any:
        lines.append(line[:3])

    def app(environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return []

    for url, cost in ((server.url, -1), (nobody(), 1)):
        wsgi.Limit(app, url=url, timeout=TIMEOUT, cost=cost)({"REQUEST_METHOD": "GET"}, start)
    unrouted, mistake, _, away = caplog.records
    assert (lines, mistake.levelname, away.levelname) == (["500", "200"], "ERROR", "WARNING")
    assert "without route=" in unrouted.getMessage()
    assert "cost is -1" in mistake.getMessage()
    assert "does not answer" in away.getMessage()


def test_retries_have_a_budget() -> None:
    """What takes nothing twice is repeated, never after the deadline, and by a tenth of the calls in the long run."""
    calls = Calls("http://127.0.0.1:1", 60.0, "raise")
    sent = 0
    for _ in range(300):
        flow = calls.peek({"descriptor": {}})
        step = next(flow)
        try:
            while True:
                sent += type(step).__name__ == "Send"
                step = flow.throw(ConnectionError("refused")) if type(step).__name__ == "Send" else next(flow)
        except UnavailableError:
            pass
    assert sent <= 300 + 300 / 10 + 10
    for check, again in (({"descriptor": {}}, False), ({"descriptor": {}, "id": "1"}, True)):
        flow = Calls("http://127.0.0.1:1", 60.0, "raise").check(check, False)
        next(flow)
        if again:
            assert type(flow.throw(ConnectionError("refused"))).__name__ == "Sleep"
        else:
            with pytest.raises(UnavailableError):
                flow.throw(ConnectionError("refused"))
    flow = Calls("http://127.0.0.1:1", 60.0, "raise").peek({"descriptor": {}})
    next(flow)
    with pytest.raises(UnavailableError):
        flow.send(answered(503, b"{}", **{"headgate-retry": "no"}))


def test_threads_share_a_limit_exactly(server: Service) -> None:
    with Client(server.url, timeout=TIMEOUT) as client, ThreadPoolExecutor(16) as pool:
        admitted = sum(v.allowed for v in pool.map(lambda _: client.check("many"), range(1200)))
        assert (admitted, len(client._idle) <= 16) == (1000, True)


def test_tasks_share_connections(server: Service) -> None:
    async def main() -> None:
        async with AsyncClient(server.url, timeout=TIMEOUT) as client:
            verdicts = await asyncio.gather(*(client.check("many") for _ in range(1200)))
            assert sum(v.allowed for v in verdicts) == 1000
            assert client._pool is not None
            assert len(client._pool.idle) <= 64
            # What is cancelled takes its connection along, and no other.
            calls = [asyncio.create_task(client.peek("many")) for _ in range(40)]
            await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(e, asyncio.CancelledError) for e in ended) == 20
            assert all(not e.allowed for e in ended if not isinstance(e, BaseException))
            assert not (await client.peek("many")).allowed

    asyncio.run(main())


def test_an_event_loop_after_another(server: Service) -> None:
    client = AsyncClient(server.url, timeout=TIMEOUT)
    for _ in range(3):
        assert asyncio.run(once(client)).allowed


async def once(client: AsyncClient) -> Any:
    verdict = await client.peek("many")
    await client.aclose()
    return verdict


def test_a_fork_has_connections_of_its_own(server: Service) -> None:
    client = Client(server.url, timeout=TIMEOUT)
    assert client.check("many").allowed
    permit = client.acquire("report", "forked")
    (kept,) = (connection.socket for connection in client._idle)
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                ok = all(client.check("many").allowed for _ in range(50))
                ok = ok and all(c.socket is not kept for c in client._idle) and kept.fileno() < 0 and permit.release()
                os._exit(0 if ok else 1)
            finally:
                os._exit(2)
        children.append(pid)
    assert all(client.check("many").allowed for _ in range(50))
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    assert client.peek("many").decisions[0].remaining == 1000 - 251
    assert not client.acquire("report", "forked")  # The children have not given it back.
    permit.release()
    client.close()


def test_reservations(server: Service) -> None:
    def left() -> int:
        return client.peek("mail", "ann").decisions[0].remaining

    with Client(server.url, timeout=TIMEOUT) as client:
        with client.reserve("mail", "ann", cost=3) as reservation:
            assert left() == 0
            with (
                pytest.raises(DeniedError, match="rule mail, 3 per 1h; it fits in 3600 s"),
                client.reserve("mail", "ann"),
            ):
                pytest.fail("the body of a denied reservation runs")
            reservation.cost = 1
        assert left() == 2
        with pytest.raises(ZeroDivisionError), client.reserve("mail", "ann", cost=2):
            assert 1 / 0
        assert left() == 2
        with client.reserve("mail", "ann", cost=2):
            pass
        assert left() == 0


def test_reservations_of_tasks(server: Service) -> None:
    async def main() -> None:
        async with AsyncClient(server.url, timeout=TIMEOUT) as client:

            async def work(reserved: asyncio.Event) -> None:
                async with client.reserve("mail", "eve", cost=3):
                    reserved.set()
                    await asyncio.sleep(TIMEOUT)

            reserved = asyncio.Event()
            task = asyncio.create_task(work(reserved))
            await reserved.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.peek("mail", "eve")).decisions[0].remaining == 3
            reservation = await client.reserve("mail", "eve", cost=3)
            await reservation.settle(cost=1)
            assert (await client.peek("mail", "eve")).decisions[0].remaining == 2

    asyncio.run(main())


def test_permits(server: Service) -> None:
    before = threading.active_count()
    with Client(server.url, timeout=TIMEOUT) as client:
        with client.acquire("report", "acme") as permit:
            assert (permit.slots, permit.epoch > 0, permit.lost) == ((0,), True, False)
            assert threading.active_count() == before + 1
            with pytest.raises(DeniedError, match="1 of 1 in progress") as caught, client.acquire("report", "acme"):
                pytest.fail("the body of a denied permit runs")
            assert caught.value.response()[1:] == (429, {**caught.value.response()[2], "retry-after": "1"})
            waits = ThreadPoolExecutor(1).submit(client.acquire, "report", "acme", wait=20)
            until(lambda: holders(server)["waiting"])
        assert waits.result().allowed  # It is released by the end of the client.
    assert threading.active_count() <= before + 1  # that of the pool
    assert not holders(server)["permits"]


def holders(server: Service) -> dict[str, Any]:
    url = server.url + "/v1/permits/holders?rule=report&key=acme"
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + VECTORS["token"]})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def revoke(server: Service, holder: str) -> None:
    body = json.dumps({"rule": "report", "key": "acme", "holder": holder}).encode()
    headers = {"Authorization": "Bearer " + VECTORS["token"], "Content-Type": "application/json"}
    urllib.request.urlopen(
        urllib.request.Request(server.url + "/v1/permits/revoke", body, headers), timeout=TIMEOUT
    ).close()


def test_a_permit_is_renewed_and_lost(server: Service) -> None:
    with Client(server.url, timeout=TIMEOUT) as client, client.acquire("report", "acme", ttl=1.2) as permit:
        server.advance("1s")
        permit._lease.ends = time.monotonic() + 3  # The service's clock was turned, and ours was not.
        until(
            lambda: (
                permit._lease.ends > time.monotonic() + 0.5 and holders(server)["permits"][0]["expires_in_ms"] > 1000
            )
        )
        permit.check()
        revoke(server, permit.holder)
        until(lambda: permit.lost)
        with pytest.raises(PermitLostError, match="it was revoked"):
            permit.check()


def test_the_body_of_a_lost_permit_is_cancelled(server: Service) -> None:
    async def main() -> None:
        async with AsyncClient(server.url, timeout=TIMEOUT) as client:
            with pytest.raises(PermitLostError, match="it was revoked"):
                async with client.acquire("report", "acme", ttl=1) as permit:
                    revoke(server, permit.holder)
                    await asyncio.sleep(TIMEOUT)
            await asyncio.sleep(0)  # It is not cancelled any more.
            async with client.acquire("report", "acme") as permit:
                pass
            assert permit._renewal is None
            # Who is cancelled while it waits gives its place in line back.
            async with client.acquire("report", "acme"):
                waits = asyncio.create_task(waiting(client))
                while not holders(server)["waiting"]:
                    await asyncio.sleep(0.01)
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits
            await client.aclose()
            assert holders(server)["waiting"] == []
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


async def waiting(client: AsyncClient) -> None:
    async with client.acquire("report", "acme", wait=20):
        pytest.fail("it was cancelled")


def test_a_permit_whose_grant_was_not_heard_is_given_back() -> None:
    async def later(url: str) -> None:
        async with AsyncClient(url, timeout=0.5) as client:
            with pytest.raises(UnavailableError):
                await client.acquire("report", "acme")

    def now(url: str) -> None:
        with Client(url, timeout=0.5, on_failure="allow") as client:
            assert client.acquire("report", "acme")

    for acquire in (now, lambda url: asyncio.run(later(url))):
        with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
            ends = pool.submit(acquire, f"http://127.0.0.1:{listener.getsockname()[1]}")
            listener.settimeout(TIMEOUT)
            asked: list[tuple[bytes, str]] = []
            kept = []  # Nobody is answered.
            while not any(b"/v1/permits/release" in line for line, _ in asked):
                kept.append(listener.accept()[0])
                line, _, rest = kept[-1].recv(1 << 16).partition(b"\r\n")
                if line:
                    asked.append((line, json.loads(rest.partition(b"\r\n\r\n")[2])["holder"]))
            assert len({holder for _, holder in asked}) == 1
            ends.result()


def test_decorators(server: Service) -> None:
    client, asked = Client(server.url, timeout=TIMEOUT), AsyncClient(server.url, timeout=TIMEOUT)

    @client.limit("mail", key=lambda user, text: user)
    def send(user: str, text: str) -> str:
        """Send."""
        return f"{text} to {user}"

    @asked.limit("mail", key=lambda user, text: user, cost=2)
    async def send_later(user: str, text: str) -> str:
        return f"{text} to {user}"

    assert (send("ann", text="hi"), send.__doc__) == ("hi to ann", "Send.")
    assert asyncio.run(send_later("ann", "hi")) == "hi to ann"
    with pytest.raises(DeniedError) as caught:
        send("ann", "hi")
    body, status, headers = caught.value.response()
    assert (json.loads(body)["violated-policies"], status, headers["retry-after"]) == (["mail"], 429, "3600")


def test_an_address_that_does_not_answer_does_not_hide_the_next(
    server: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        full = []  # Who comes later is not answered.
        for _ in range(4):
            full.append(socket.socket())
            full[-1].setblocking(False)
            full[-1].connect_ex(listener.getsockname())
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            for address in (listener.getsockname(), ("127.0.0.1", port))
        ]
        real = socket.getaddrinfo

        def found(host: Any, *args: Any, **more: Any) -> Any:
            return addresses if host == "two.example" else real(host, *args, **more)

        monkeypatch.setattr(socket, "getaddrinfo", found)

        async def later() -> None:
            async with AsyncClient("http://two.example", timeout=6.0) as client:
                assert (await client.check("mail", "two")).at

        with Client("http://two.example", timeout=6.0) as client:
            assert client.check("mail", "two").at
        asyncio.run(later())
        for connection in full:
            connection.close()
