"""The cases of client/vectors.json, with both clients."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import TIMEOUT, VECTORS, Service

from headgate import AsyncClient, Check, Client, DeniedBy, RequestError, UnavailableError, Verdict
from headgate._identity import Proxies, Unclear, api_key, hostname

GOOD = b'HTTP/1.1 200 OK\r\nContent-Length: 63\r\n\r\n{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[]}'


class Waiting:
    """A `Client` made of an `AsyncClient` and its event loop."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        self.runner = asyncio.Runner()
        self.client = AsyncClient(url, timeout=timeout)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            return await getattr(self.client, name)(*args, **options)

        return lambda *args, **options: self.runner.run(call(*args, **options))

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


@pytest.fixture(params=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(url: str, timeout: float = TIMEOUT) -> Any:
        made.append(Client(url, timeout=timeout) if request.param == "threads" else Waiting(url, timeout))
        return made[-1]

    yield make
    for client in made:
        client.close()


class Answers:
    """Answers the request of a user with what a case has, and others well."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/below/"
        self.requests: list[bytes] = []
        self.connections: list[socket.socket] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        text = b""
        try:
            while data := connection.recv(1 << 16):
                text += data
                head, end, body = text.partition(b"\r\n\r\n")
                if not end or len(body) < int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
                    continue
                self.requests.append(text)
                text = b""
                if b"user" not in body:
                    connection.sendall(GOOD)
                    continue
                for part in self.case["answer"]:
                    if part is None:
                        connection.shutdown(socket.SHUT_WR)
                    elif self.case.get("bytewise"):
                        for byte in part.encode():
                            connection.sendall(bytes([byte]))
                    else:
                        connection.sendall(part.encode())
        except OSError:
            pass

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()


@pytest.mark.parametrize("case", VECTORS["answers"], ids=lambda case: case["name"])
def test_answers(case: dict[str, Any], connect: Callable[..., Any]) -> None:
    server = Answers(case)
    try:
        client = connect(server.url)
        first = connect(server.url, case["timeout_ms"] / 1000) if "timeout_ms" in case else client
        got: dict[str, Any]
        try:
            verdict = first.check({"user": "schlüssel"})
            got = {"kind": "verdict", "allowed": verdict.allowed, "status": verdict.status, "headers": verdict.headers}
        except UnavailableError as err:
            after = err.retry_after * 1000
            got = {"kind": "unavailable", "status": err.status, "retry_after_ms": after, "final": err.final}
        except RequestError as err:
            got = {"kind": "mistake", "status": err.status}
        assert {name: got[name] for name in case["outcome"]} == case["outcome"]
        assert client.check({}).allowed
        assert len(server.connections) == (1 if case["connection_again"] else 2)
        assert server.requests[0].startswith(b"POST /below/v1/check?status=true&at=true HTTP/1.1\r\nHost: 127.0.0.1:")
        assert server.requests[0].endswith('{"descriptor":{"user":"schlüssel"}}'.encode())
    finally:
        server.close()


def ms(seconds: float) -> float:
    return -1 if seconds == float("inf") else round(seconds * 1000, 6)


def body_of(verdict: Verdict) -> dict[str, Any]:
    """The verdict as the HTTP API writes it."""
    body: dict[str, Any] = {
        "allowed": verdict.allowed,
        "retry_after_ms": ms(verdict.retry_after),
        "delay_ms": ms(verdict.delay),
        "decisions": [],
    }
    for d in verdict.decisions:
        plain = {name: getattr(d, name) for name in ("rule", "limit", "algorithm", "allowed", "capacity", "remaining")}
        times = {f"{name}_ms": ms(getattr(d, name)) for name in ("period", "retry_after", "reset_after")}
        body["decisions"].append({**plain, **times, **({"soft": True} if d.soft else {})})
        if d.source != "store":
            body["decisions"][-1]["source"] = d.source
    if verdict.denied_by:
        by = verdict.denied_by
        body["denied_by"] = {"list": by.list} if by.list else {"rule": by.rule, "limit": by.limit}
        assert isinstance(by, DeniedBy)
    if verdict.reservation:
        body |= {"reservation": verdict.reservation, "expires_in_ms": ms(verdict.expires_in)}
    return body


def make(client: Any, step: dict[str, Any], before: list[Any]) -> Any:
    """Make the call of a step."""
    request, call = dict(step["request"]), step["call"]
    options: dict[str, Any] = {name: request.pop(name) for name in ("cost", "id") if name in request}
    if call == "cancel":
        return client.cancel(request["reservation"])
    if call == "settle":
        return client.settle(request["reservation"], status=request.get("status"), **options)
    if call == "acquire":
        return client.acquire(request["rule"], request["key"], holder=request["holder"])
    if "lifetime_ms" in request:
        options["lifetime"] = request["lifetime_ms"] / 1000
    if step.get("outcome"):
        options["outcome"] = True
    if "at_of" in step:
        options["at"] = before[step["at_of"]].at
    what = request.get("descriptor") or [Check(**check) for check in request["checks"]]
    return getattr(client, call)(what, **options)


def test_calls(service: Callable[..., Service], connect: Callable[..., Any]) -> None:
    servers = {
        name: service("\n".join(VECTORS["calls"]["policy"]), *VECTORS["servers"][name])
        for name in ("x-ratelimit", "away")
    }
    clients = {name: connect(server.url) for name, server in servers.items()}
    for case in VECTORS["calls"]["cases"]:
        name = case.get("server", "x-ratelimit")
        server, client = servers[name], clients[name]
        answers: list[Any] = []
        held: dict[str, Any] = {}
        for number, step in enumerate(case["steps"], 1):
            where, want = f"{case['name']}, step {number}", step.get("want")
            if "advance" in step:
                server.advance(step["advance"])
                answers.append(None)
                continue
            if step["call"] == "release":
                release = held.pop(step["request"]["holder"], None)
                assert release is None or wait(client, release.release()), where
                continue
            try:
                got = make(client, step, answers)
            except RequestError as err:
                assert ("mistake", err.status, err.fields) == (
                    want.get("error"),
                    want["status"],
                    want.get("fields", []),
                ), where
                continue
            except UnavailableError as err:
                assert ("unavailable", err.status, ms(err.retry_after)) == (
                    want.get("error"),
                    want["status"],
                    want["retry_after_ms"],
                ), where
                continue
            answers.append(got)
            assert "error" not in want, where
            if step["call"] == "reserve":
                got = got.verdict
            if step["call"] == "acquire":
                held[got.holder] = got
                slots = tuple(want["body"].get("permit", {}).get("slots", ()))
                expected = [want["body"][name] for name in ("allowed", "in_use", "limit", "retry_after_ms")]
                assert [got.allowed, got.in_use, got.limit, ms(got.retry_after), got.slots] == [*expected, slots], where
            elif step["call"] == "reset":
                assert got == want["body"]["reset"], where
            else:
                assert body_of(got) == want["body"], where
                if "headers" in want:
                    assert (got.status, got.headers) == (want["status"], want["headers"]), where
        for permit in held.values():
            wait(client, permit.release())
    servers["x-ratelimit"].advance("24h")  # for those who come next


def wait(client: Any, released: Any) -> Any:
    async def awaited() -> Any:
        return await released

    return client.runner.run(awaited()) if isinstance(client, Waiting) else released


@pytest.mark.parametrize("case", VECTORS["addresses"], ids=lambda case: case["name"])
def test_addresses(case: dict[str, Any]) -> None:
    assert Proxies(case["trusted"], case["source"]).client(case["peer"], case["lines"]) == case["want"]


def test_api_keys() -> None:
    for case in VECTORS["api_keys"]:
        lines = {name: [v for n, v in case["headers"] if n == name] for name in ("Authorization", "X-Api-Key")}
        try:
            got = api_key(lines["Authorization"], lines["X-Api-Key"])
        except Unclear:
            assert case.get("unclear"), case
        else:
            assert got == case.get("want"), case


def test_hosts() -> None:
    for case in VECTORS["hosts"]:
        try:
            got = hostname(case["host"])
        except Unclear:
            assert case.get("unclear"), case
        else:
            assert got == case.get("want"), case
