"""Answers of HTTP/1.1, read as they arrive. Nothing here does input or output."""

import re
from collections.abc import Generator, Iterator

Step = Generator[None, None, bytes]
"""A part of the answer, when all of it has arrived."""

MAX_HEAD = 64 << 10
"""How many bytes of headers are read, and of a body. Those of the service are far smaller."""
MAX_BODY = 4 << 20

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |$)")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~\w-]+):[ \t]*(.*)")
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;.*)?")


class ProtocolError(Exception):
    """What has arrived is not an answer of HTTP/1.1, or ends before it is complete."""


class Answer:
    """An answer. `feed` it until it is complete.

    It is strict: where two readers could see two answers, such as in one with two lengths, it sees none.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """By their names in lower case. Several lines of one name are joined by a comma."""
        self.body = b""
        self.reusable = False
        """Whether the connection can have another call."""
        self._rest = bytearray()  # has arrived, and is not read yet
        self._ended = False
        self._steps = self._read()

    def feed(self, data: bytes) -> bool:
        """Read what has arrived; no bytes are the end of the connection. Return whether the answer is complete."""
        self._rest += data
        self._ended = not data
        for _ in self._steps:
            if self._ended:
                raise ProtocolError("the connection was closed before the answer")
            return False
        if self._rest:
            self.reusable = False  # More than was asked for.
        return True

    # The steps yield where more has to arrive.

    def _read(self) -> Iterator[None]:
        while True:
            first, *fields = (
                yield from self._until(b"\r\n\r\n", MAX_HEAD, "the headers of its answer are too long")
            ).split(b"\r\n")
            line = _STATUS.match(first)
            if line is None or line[2] == b"101":
                raise ProtocolError("its answer is not HTTP/1.1")
            if not line[2].startswith(b"1"):  # What begins with 1 is interim.
                break
        self.status = int(line[2])
        for text in fields:
            field = _FIELD.fullmatch(text)
            if field is None:
                raise ProtocolError("its answer has a line that is no header")
            name, value = field[1].decode("latin-1").lower(), field[2].decode("latin-1").strip(" \t")
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        coding, length = self.headers.get("transfer-encoding"), self.headers.get("content-length")
        self.reusable = line[1] == b"1" and "close" not in self.headers.get("connection", "").lower()
        if self.status in (204, 304):
            return
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise ProtocolError("the length of its answer is not clear")
            yield from self._chunks()
        elif length is not None:
            if not _LENGTH.fullmatch(length):
                raise ProtocolError("the length of its answer is not clear")
            self.body = yield from self._take(int(length))
        else:
            self.reusable = False
            while not self._ended:
                self._bounded(len(self._rest))
                yield
            self.body = bytes(self._rest)
            self._rest.clear()

    def _chunks(self) -> Iterator[None]:
        parts: list[bytes] = []
        total = 0
        while True:
            line = _CHUNK.fullmatch((yield from self._line()))
            if line is None:
                raise ProtocolError("its answer has a part without a length")
            size = int(line[1], 16)
            if size == 0:
                break
            total += size
            self._bounded(total)
            parts.append((yield from self._take(size)))
            if (yield from self._line()) != b"":
                raise ProtocolError("its answer has a part of another length")
        while (yield from self._line()) != b"":
            pass  # a trailer, which says nothing here
        self.body = b"".join(parts)

    def _line(self) -> Step:
        return (yield from self._until(b"\r\n", 1024, "its answer has a part without a length"))

    def _until(self, mark: bytes, most: int, otherwise: str) -> Step:
        while (end := self._rest.find(mark)) < 0 and len(self._rest) <= most:
            yield
        if not 0 <= end <= most:
            raise ProtocolError(otherwise)
        part = bytes(self._rest[:end])
        del self._rest[: end + len(mark)]
        return part

    def _take(self, size: int) -> Step:
        self._bounded(size)
        while len(self._rest) < size:
            yield
        part = bytes(self._rest[:size])
        del self._rest[:size]
        return part

    def _bounded(self, size: int) -> None:
        if size > MAX_BODY:
            raise ProtocolError(f"its answer has more than {MAX_BODY} bytes")
