"""A WSGI application, which says what it was asked: it gets X_Api_Key as X-Api-Key."""

import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [(f"host={environ.get('HTTP_X_SERVED')} key={environ.get('HTTP_X_API_KEY')} script={environ.get('HTTP_SCRIPT_NAME')}").encode()]


server = make_server("127.0.0.1", 0, application, handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
