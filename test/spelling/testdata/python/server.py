"""Starlette behind uvicorn. It prints its name and its port when it serves."""

import asyncio
import socket
import sys
import threading

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

METHODS = ["GET", "POST"]


def answer(name):
    async def endpoint(request):
        return PlainTextResponse(name)

    return endpoint


app = Starlette(routes=[
    Route("/v1/token", answer("token"), methods=METHODS),
    Route("/admin/{rest:path}", answer("admin"), methods=METHODS),
    Route("/{rest:path}", answer("other"), methods=METHODS),
])

listener = socket.create_server(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))


def until_the_test_ends():
    sys.stdin.read()
    server.should_exit = True


threading.Thread(target=until_the_test_ends, daemon=True).start()
print("starlette", listener.getsockname()[1], flush=True)
asyncio.run(server.serve(sockets=[listener]))
