"""The middlewares, in real frameworks on real servers."""

import http.client
import json
import os
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import HERE, TIMEOUT, VECTORS, Process, Service
from websockets.sync.client import connect

MAIL = """
  - name: mail
    match: { user: present }
    per: [user]
    algorithm: sliding_window
    limits: [1 per 1h]
"""
POLICY = "\n".join(VECTORS["requests"]["policy"])
PATH = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def services(service: Callable[..., Service]) -> dict[str, Service]:
    rules = POLICY.replace('{ route: "GET /items/{id}" }', '{ route: ["GET /items/{id}", "GET /items/<id>"] }')
    return {name: service(rules + MAIL, *options) for name, options in VECTORS["servers"].items()}


@pytest.fixture(scope="session")
def servers(services: dict[str, Service]) -> Iterator[dict[str, Process]]:
    urls = json.dumps({name: each.url for name, each in services.items()})
    says = r"(?:running on|Listening at:) (http://\S+)"
    commands = {
        "asgi": [
            "uvicorn",
            "--loop",
            "uvloop",
            "--port",
            "0",
            "--lifespan",
            "off",
            "--no-access-log",
            "apps:application",
        ],
        "wsgi": [
            "gunicorn",
            "-w",
            "2",
            "--preload",
            "--limit-request-field_size",
            "16384",
            "-b",
            "127.0.0.1:0",
            "apps:wsgi_application",
        ],
    }
    with ThreadPoolExecutor() as pool:
        started = dict(
            zip(
                commands,
                pool.map(
                    lambda c: Process([sys.executable, "-m", *c], says, URLS=urls, PYTHONPATH=PATH), commands.values()
                ),
                strict=True,
            )
        )
    yield started
    for process in started.values():
        process.stop()


def ask(
    server: Process, method: str, path: str, *headers: tuple[str, str], body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=TIMEOUT)
    connection.putrequest(method, path)
    for name, value in (*headers, ("Content-Length", str(len(body)))):
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    got: dict[str, str] = {}
    for name, value in ((name.lower(), value) for name, value in answer.getheaders()):
        assert name not in got or name in ("vary", "set-cookie"), f"{name} is there twice"
        got[name] = value
    return answer.status, got, text


def limits(headers: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name in ("retry-after", "cache-control", "x-content-type-options") or "ratelimit" in name
    }


@pytest.mark.parametrize(
    ("kind", "app"),
    [
        ("asgi", "fastapi"),
        ("asgi", "starlette"),
        ("asgi", "litestar"),
        ("asgi", "django"),
        ("wsgi", "flask"),
        ("wsgi", "django"),
    ],
)
def test_requests(kind: str, app: str, services: dict[str, Service], servers: dict[str, Process]) -> None:
    for name, each in services.items():
        if name != "away":
            each.advance("24h")  # behind those of others
    for case in VECTORS["requests"]["cases"]:
        for number, step in enumerate(case["steps"], 1):
            where, want = f"{case['name']}, step {number}", step.get("want")
            if "advance" in step:
                services[case["server"]].advance(step["advance"])
                continue
            to, headers = step["request"], [tuple(line) for line in step["request"]["headers"]]
            if headers:
                name, value = headers[-1]
                headers[-1] = (name, value * to.get("times", 1))
            more = [("X-App", app), ("X-Server", case["server"])]
            status, got, text = ask(servers[kind], to["method"], to["path"], *headers, *more)
            if (app == "django" and status < 400) or status == 404:
                got.pop("x-content-type-options", None)  # Django's own
            assert (status, limits(got)) == (want["status"], want["headers"]), f"{where}: {text!r}"
            if "problem" in want:
                assert (json.loads(text), got["content-type"]) == (want["problem"], "application/problem+json"), where


@pytest.mark.parametrize(("kind", "header"), [("asgi", "fastapi"), ("wsgi", "flask")])
def test_single_endpoints(kind: str, header: str, servers: dict[str, Process]) -> None:
    to = ("X-App", header)
    assert ask(servers[kind], "POST", f"/mail/{header}", to)[0] == 200
    status, headers, text = ask(servers[kind], "POST", f"/mail/{header}", to)
    assert (status, headers["retry-after"], json.loads(text)["violated-policies"]) == (429, "3600", ["mail"])
    assert headers["content-type"].startswith("application/problem+json")


def test_within_litestar(servers: dict[str, Process]) -> None:
    app, address = ("X-App", "litestar within"), ("X-Forwarded-For", "203.0.113.95")
    assert [ask(servers["asgi"], "GET", "/items/7", app, address)[0] for _ in range(3)] == [200, 200, 429]


def test_streams_and_sockets(servers: dict[str, Process]) -> None:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(servers["asgi"].url).netloc, timeout=TIMEOUT)
    connection.request("GET", "/events", headers={"X-Forwarded-For": "203.0.113.99"})
    answer = connection.getresponse()
    assert answer.read(5) == b"first"
    assert ask(servers["asgi"], "POST", "/read", ("X-Forwarded-For", "203.0.113.96"))[0] == 200
    assert answer.read() == b"last"
    connection.close()
    with connect(servers["asgi"].url.replace("http", "ws") + "/socket", open_timeout=TIMEOUT) as socket:
        socket.send("hi")
        assert socket.recv(timeout=TIMEOUT) == "echo hi"
    status, _, text = ask(servers["wsgi"], "GET", "/parts", ("X-Forwarded-For", "203.0.113.98"))
    assert (status, text.startswith(b"first")) == (200, True)


def test_an_endpoint_that_fails(services: dict[str, Service], servers: dict[str, Process]) -> None:
    """What ends in an exception ends with 500, which the rule does not count."""
    for _ in range(4):
        status, headers, _ = ask(
            servers["asgi"], "POST", "/login", ("X-Forwarded-For", "203.0.113.97"), ("X-Status", "500")
        )
        assert (status, headers.get("x-ratelimit-remaining")) in ((500, "1"), (500, None))
