"""Starlette behind uvicorn, Sanic, Bottle behind wsgiref, Flask behind werkzeug and CherryPy.
Each prints its name and its port when it serves."""

import asyncio
import logging
import os
import socket
import sys
import threading
import wsgiref.simple_server

import bottle
import cheroot.wsgi
import cherrypy
import flask
import sanic
import uvicorn
import werkzeug.serving
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

METHODS = ["GET", "POST"]
logging.disable(logging.CRITICAL)


def endpoint(name):
    async def answer(request):
        return PlainTextResponse(name)

    return answer


async def no_route(request, error):
    return PlainTextResponse("other")


starlette = Starlette(routes=[
    Route("/v1/token", endpoint("token"), methods=METHODS),
    Route("/admin/{rest:path}", endpoint("admin"), methods=METHODS),
], exception_handlers={404: no_route})

of_sanic = sanic.Sanic("spelling", configure_logging=False)
of_sanic.exception(sanic.exceptions.NotFound)(lambda request, error: sanic.text("other"))
of_bottle = bottle.Bottle()
of_bottle.error(404)(lambda error: bottle.HTTPResponse("other"))
of_flask = flask.Flask("spelling")
of_flask.register_error_handler(404, lambda error: "other")

for path, name in [("/v1/token", "token"), ("/admin/<rest:path>", "admin")]:
    async def sanic_answer(request, rest="", name=name):
        return sanic.text(name)

    of_sanic.add_route(sanic_answer, path, methods=METHODS, name=name)
    of_bottle.route(path, METHODS, lambda rest="", name=name: name)
    of_flask.add_url_rule(path.replace("<rest:path>", "<path:rest>"), name, lambda rest="", name=name: name, methods=METHODS)


class Root:
    class V1:
        @cherrypy.expose
        def token(self):
            return "token"

    class Admin:
        @cherrypy.expose
        def default(self, *rest):
            return "admin"

    v1, admin = V1(), Admin()

    @cherrypy.expose
    def default(self, *rest):
        return "other"


cherrypy.config.update({"environment": "embedded", "log.screen": False})
cherrypy.tree.mount(Root(), "")


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *args):
        pass


def start(name, port, serve):
    threading.Thread(target=serve, daemon=True).start()
    print(name, port, flush=True)


server = wsgiref.simple_server.make_server("127.0.0.1", 0, of_bottle, handler_class=Quiet)
start("bottle", server.server_port, server.serve_forever)
server = werkzeug.serving.make_server("127.0.0.1", 0, of_flask, threaded=True)
start("flask", server.server_port, server.serve_forever)
server = cheroot.wsgi.Server(("127.0.0.1", 0), cherrypy.tree)
server.prepare()
start("cherrypy", server.bind_addr[1], server.serve)


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    other = socket.create_server(("127.0.0.1", 0))
    sanics = await of_sanic.create_server(sock=other, return_asyncio_server=True)
    await sanics.startup()
    await sanics.before_start()
    await sanics.start_serving()
    print("sanic", other.getsockname()[1], flush=True)
    print("starlette", listener.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(starlette, log_level="critical", lifespan="off")).serve(sockets=[listener])


def until_the_test_ends():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=until_the_test_ends, daemon=True).start()
asyncio.run(main())
