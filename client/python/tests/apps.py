"""The same site in each framework, behind the middleware. URLS has the services, by the names in the vectors."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import django
import django.http
import litestar
from conftest import TIMEOUT
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.responses import StreamingResponse
from flask import Flask
from flask import Response as FlaskResponse
from flask import request as flask_request
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from headgate import AsyncClient, Client, DeniedError, asgi, routes, wsgi

URLS: dict[str, str] = json.loads(os.environ["URLS"])
OWN = next(iter(URLS.values()))
own, own_async = Client(OWN, timeout=TIMEOUT), AsyncClient(OWN, timeout=TIMEOUT)


# FastAPI

fastapi = FastAPI()


@fastapi.get("/items/{id}")
@fastapi.head("/items/{id}")
async def item(id: str, request: Request) -> dict[str, Any]:
    return {"item": id, "remaining": [d.remaining for d in request.scope["headgate"].decisions]}


@fastapi.get("/paced")
async def paced() -> str:
    return "ok"


@fastapi.post("/login")
async def login(request: Request) -> Response:
    status = int(request.headers["x-status"])
    if status == 500:
        raise ZeroDivisionError
    return Response(status_code=status)


@fastapi.post("/mail/{user}")
@own_async.limit("mail", key=lambda user: user)
async def mail(user: str) -> str:
    return f"mail to {user}"


read = asyncio.Event()


@fastapi.get("/events")
async def events() -> StreamingResponse:
    """Answer in two parts, the second when somebody has read the first."""

    async def parts() -> AsyncIterator[str]:
        yield "first"
        await read.wait()
        yield "last"

    return StreamingResponse(parts())


@fastapi.post("/read")
async def was_read() -> None:
    read.set()


@fastapi.websocket("/socket")
async def talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("echo " + await socket.receive_text())
    await socket.close()


# Starlette, with routes below others


async def ok(request: StarletteRequest) -> PlainTextResponse:
    return PlainTextResponse("ok", status_code=int(request.headers.get("x-status", 200)))


starlette = Starlette(
    routes=[
        Mount("/items", routes=[Route("/{id}", ok)]),
        Route("/paced", ok),
        Route("/login", ok, methods=["POST"]),
    ]
)

# Litestar, around which the middleware is; as one of its own, it sees no request that no route serves


@litestar.route("/items/{id:str}", http_method=["GET", "HEAD"], sync_to_thread=False)
def litestar_item(id: str) -> str:
    return f"item {id}"


@litestar.get("/paced", sync_to_thread=False)
def litestar_paced() -> str:
    return "ok"


@litestar.post("/login")
async def litestar_login(request: litestar.Request[Any, Any, Any]) -> litestar.Response[None]:
    return litestar.Response(None, status_code=int(request.headers["x-status"]))


around = litestar.Litestar([litestar_item, litestar_paced, litestar_login])

# Django

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF="apps", SECRET_KEY="tests", DEBUG=False)  # noqa: S106
django.setup()


@csrf_exempt  # type: ignore[untyped-decorator]
def view(request: django.http.HttpRequest, id: str = "") -> django.http.HttpResponse:
    return django.http.HttpResponse("ok", status=int(request.headers.get("x-status", 200)))


urlpatterns = [path("items/<id>", view), path("paced", view), path("login", view)]

# Flask

flask = Flask("site")


@flask.get("/items/<id>")
def flask_item(id: str) -> str:
    return f"item {id}"


@flask.get("/paced")
def flask_paced() -> str:
    return "ok"


@flask.post("/login")
def flask_login() -> FlaskResponse:
    return FlaskResponse(status=int(flask_request.headers["X-Status"]))


@flask.post("/mail/<user>")
@own.limit("mail", key=lambda user: user)
def flask_mail(user: str) -> str:
    return f"mail to {user}"


@flask.errorhandler(DeniedError)
def denied(err: DeniedError) -> tuple[bytes, int, dict[str, str]]:
    return err.response()


@flask.get("/parts")
def flask_parts() -> FlaskResponse:
    def parts() -> Iterator[bytes]:
        yield b"first"
        yield str(os.getpid()).encode()

    return FlaskResponse(parts())


# What is asked for is in two headers of the tests' own.

Scope = MutableMapping[str, Any]
TRUST = ["127.0.0.0/8"]


def limited(app: Any, route: Callable[[Scope], str]) -> dict[str, asgi.Limit]:
    client = {name: AsyncClient(url, timeout=TIMEOUT) for name, url in URLS.items()}
    return {name: asgi.Limit(app, client=client[name], trust=TRUST, route=route) for name in URLS}


class Limits:
    """The middleware of the service that the request asks for."""

    def __init__(self, app: Any, route: Callable[[Scope], str] = routes.starlette) -> None:
        self.limits = limited(app, route=route)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        await self.limits[header(scope, b"x-server")](scope, receive, send)


def header(scope: Scope, name: bytes) -> str:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    return headers.get(name, b"x-ratelimit").decode()


fastapi.add_middleware(Limits)
starlette.add_middleware(Limits)

SITES: dict[str, Callable[..., Awaitable[None]]] = {
    "fastapi": fastapi,
    "starlette": starlette,
    "litestar": Limits(around, route=routes.litestar(around)),
    "litestar within": litestar.Litestar([litestar_item], middleware=[Limits]),
    "django": Limits(get_asgi_application(), route=routes.django),
}


async def application(scope: Scope, receive: Any, send: Any) -> None:
    """All sites of ASGI."""
    if scope["type"] == "lifespan":
        return
    site = SITES[dict(scope["headers"]).get(b"x-app", b"fastapi").decode()]
    await site(scope, receive, send)


def limited_wsgi(app: Any, route: Any) -> dict[str, wsgi.Limit]:
    client = {name: Client(url, timeout=TIMEOUT) for name, url in URLS.items()}
    return {name: wsgi.Limit(app, client=client[name], trust=TRUST, route=route) for name in URLS}


WSGI_SITES = {
    "flask": limited_wsgi(flask.wsgi_app, routes.flask(flask)),
    "django": limited_wsgi(get_wsgi_application(), routes.django),
}

# The parent of the workers asks before it forks them: its connections must not be theirs.
for limits in WSGI_SITES.values():
    for limit in limits.values():
        limit.client.peek({"nobody": "is limited"})


def wsgi_application(environ: dict[str, Any], start_response: Any) -> Any:
    """All sites of WSGI."""
    site = WSGI_SITES[environ.get("HTTP_X_APP", "flask")][environ.get("HTTP_X_SERVER", "x-ratelimit")]
    return site(environ, start_response)
