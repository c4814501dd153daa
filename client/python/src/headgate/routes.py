"""The names of routes, as frameworks write them: ``GET /items/{id}``.

A function here is for the option ``route`` of the middlewares. What no route serves is ``unmatched``.
"""

from collections.abc import Callable, MutableMapping
from typing import Any

from ._guard import UNMATCHED

Scope = MutableMapping[str, Any]


def starlette(scope: Scope) -> str:
    """The route of Starlette and FastAPI that will serve a request; within Litestar, the one that it has found."""
    if "path_template" in scope:
        return f"{_get(scope['method'])} {scope['path_template']}"
    found = _find(getattr(scope.get("app"), "routes", ()), scope)
    return UNMATCHED if found is None else f"{_get(scope['method'])} {found}"


def _find(routes: Any, scope: Scope) -> str | None:
    for route in routes:
        match, child = route.matches(scope)
        if match.value != 2:  # Match.FULL: the path and the method
            continue
        path = getattr(route, "path", "")
        inner = getattr(route, "routes", None)
        if not inner:
            return str(path)
        found = _find(inner, {**scope, **child})
        return None if found is None else f"{path}{found}"
    return None


def flask(app: Any) -> Callable[[dict[str, Any]], str]:
    """Return the function for a Flask app: it asks the app which rule will serve a request."""

    def route(environ: dict[str, Any]) -> str:
        try:
            rule, _ = app.create_url_adapter(app.request_class(environ)).match(return_rule=True)
        except Exception:  # Whatever does not match: not found, another method, a redirect.
            return UNMATCHED
        return f"{_get(environ['REQUEST_METHOD'])} {rule.rule}"

    return route


def litestar(app: Any) -> Callable[[Scope], str]:
    """Return the function for a Litestar app that the middleware is around: it asks the app which route will serve."""

    def route(scope: Scope) -> str:
        try:
            *_, template = app.asgi_router.handle_routing(path=scope["path"], method=scope["method"])
        except Exception:  # Not found, another method.
            return UNMATCHED
        return f"{_get(scope['method'])} {template}"

    return route


def django(request: MutableMapping[str, Any]) -> str:
    """The pattern of Django, for both ASGI and WSGI, as ``GET /items/<int:id>``."""
    from django.urls import Resolver404, resolve  # noqa: PLC0415 - Only who uses it needs Django.

    path = request["path"] if "path" in request else request.get("PATH_INFO") or "/"
    try:
        found = resolve(path)
    except Resolver404:
        return UNMATCHED
    return f"{_get(request.get('method') or request['REQUEST_METHOD'])} /{found.route}"


def _get(method: str) -> str:
    # A route for GET serves HEAD, too.
    return "GET" if method == "HEAD" else method
