"""Who a request is from: the same rules as in Headgate's other middlewares. client/vectors.json has the cases."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# How many trusted entries of a forwarded list are walked, so that a long forged list costs little.
_MAX_HOPS = 64

_PORT = re.compile(r":[0-9]{1,5}")
_NODE = re.compile(r"[0-9A-Fa-f.:]+(?:%.*)?", re.DOTALL)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FOR_VALUE = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z:\[\]]+")


class Proxies:
    """The proxies that are believed when they say who the client is, in the header ``source``.

    A proxy is a prefix (``10.0.0.0/8``), an address (``::1``), or ``unix`` for peers on a Unix socket. ``source`` is
    ``x-forwarded-for`` or ``forwarded`` (RFC 7239), to which each proxy adds, or a header with one address that the
    proxy sets, such as ``x-real-ip``.
    """

    def __init__(self, trusted: Iterable[str], source: str) -> None:
        self.source = source.lower()
        if not _TOKEN.fullmatch(source):
            raise ValueError(f"headgate: the source of client addresses is {source!r}, must be a header's name")
        self._socket = False
        self._networks: list[Network] = []
        for text in trusted:
            if text == "unix":
                self._socket = True
                continue
            try:
                network = ipaddress.ip_network(text)
            except ValueError as err:
                raise ValueError(
                    f"headgate: trusted proxy {text!r} is not an address or a prefix such as 10.0.0.0/8: {err}"
                ) from None
            if network.prefixlen == 0:
                raise ValueError(f"headgate: trusted proxy {text!r} is every address: any client could forge its own")
            self._networks.append(network)

    def client(self, peer: str | None, lines: Sequence[str]) -> str | None:
        """The client's address, by the peer of the connection and the lines of the header; None if there is none."""
        address = _node(peer or "")
        if address is None and not (self._socket and not peer):
            return None
        if address is None or self._trusts(address):
            if self.source in ("x-forwarded-for", "forwarded"):
                address = self._walk(address, lines, _listed if self.source == "x-forwarded-for" else _forwarded)
            elif len(lines) == 1:
                address = _node(lines[0].strip(" \t")) or address
        return None if address is None else str(address)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _walk(self, last: Address | None, lines: Sequence[str], cut: "Cut") -> Address | None:
        # The lines are one list, which is read from its right end: there the nearest proxy has written.
        hops = 0
        for line in reversed(lines):
            rest: str | None = line
            while rest is not None:
                address, rest = cut(rest)
                if address is None or hops == _MAX_HOPS:
                    return last
                if not self._trusts(address):
                    return address
                last = address
                hops += 1
        return last


Cut = Callable[[str], tuple[Address | None, str | None]]
"""Cuts the last entry off a list: its address, if it has one, and the list before it."""


def _node(text: str) -> Address | None:
    """An address with or without a port. Without brackets, all of an IPv6 text is the address."""
    if not text or len(text) > 128:
        return None
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not _PORT.fullmatch(port)) or ":" not in host:
            return None
    else:
        host = text
        if text.count(":") == 1:
            host, _, port = text.partition(":")
            if not _PORT.fullmatch(":" + port):
                return None
    if not _NODE.fullmatch(host):
        return None
    try:
        address: Address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return None if address.is_unspecified else address


def _listed(text: str) -> tuple[Address | None, str | None]:
    rest, comma, last = text.rpartition(",")
    return _node(last.strip(" \t")), rest if comma else None


def _forwarded(text: str) -> tuple[Address | None, str | None]:
    # It is read from the right end: an open quote that a client has written on the left must not swallow what the
    # proxies have added.
    quoted, at = False, -1
    for i in range(len(text) - 1, -1, -1):
        if text[i] == '"' and not (quoted and _escaped(text, i)):
            quoted = not quoted
        elif text[i] == "," and not quoted:
            at = i
            break
    element = text[at + 1 :].strip(" \t")
    return _forwarded_for(element), text[:at] if at >= 0 else None


def _escaped(text: str, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _forwarded_for(element: str) -> Address | None:
    """The address of an element's parameter ``for``. One that breaks the grammar has none."""
    found: Address | None = None
    while True:
        name, equals, rest = element.partition("=")
        name = name.lstrip(" \t")
        if not equals or not _TOKEN.fullmatch(name):
            return None
        if rest.startswith('"'):
            end = 1
            while end < len(rest) and rest[end] != '"':
                end += 2 if rest[end] == "\\" else 1
            if end >= len(rest):
                return None
            value, rest = rest[1:end], rest[end + 1 :]  # An address needs no escapes.
        else:
            match = _FOR_VALUE.match(rest)
            if match is None:
                return None
            value, rest = match[0], rest[match.end() :]
        if name.lower() == "for":
            if found is not None:
                return None
            found = _node(value)
            if found is None:
                return None
        rest = rest.lstrip(" \t")
        if not rest:
            return found
        if not rest.startswith(";"):
            return None
        element = rest[1:]


class Unclear(Exception):
    """Servers read the request in different ways. Its text says why, to the client."""


def api_key(authorization: Sequence[str], x_api_key: Sequence[str]) -> str:
    """The key behind ``Bearer``, or else the one in X-API-Key; "" if there is none."""
    for name, lines in (("Authorization", authorization), ("X-Api-Key", x_api_key)):
        if len(lines) > 1:
            raise Unclear(f"{name} is there {len(lines)} times. Send it once.")
    bearer = _bearer(authorization[0]) if authorization else ""
    return bearer or (x_api_key[0].strip(" \t") if x_api_key else "")


def _bearer(line: str) -> str:
    # The key is one word of visible ASCII, with spaces before it. Servers do not agree on which part of anything else
    # is the key, so a client that knows one could pass for as many as it likes.
    visible = re.sub(r"^[^!-~]+", "", line)
    before = line[: len(line) - len(visible)].strip(" \t")
    scheme, rest = re.fullmatch(r"([!-~]*)(.*)", visible.rstrip(" \t"), re.DOTALL).groups()  # type: ignore[union-attr]
    if scheme.lower() != "bearer" or not rest:
        return ""
    key: str = rest.lstrip(" ")
    if before or not re.fullmatch(r"[!-~]*", key):
        raise Unclear(
            "Authorization has more than one word behind its scheme, or something else than spaces before it."
        )
    return key


_HOST = re.compile(r"([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\.?(?::[0-9]*)?")
_LITERAL = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]*)?")


def hostname(text: str) -> str:
    """The host without its port, in one spelling."""
    if not text:
        return ""
    if match := _HOST.fullmatch(text):
        return match[1].lower()
    if match := _LITERAL.fullmatch(text):
        try:
            return f"[{ipaddress.IPv6Address(match[1])}]"
        except ValueError:
            pass
    raise Unclear("Its host is not a name or an address, with or without a port.")
