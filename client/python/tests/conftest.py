"""Starts real services and servers for the tests."""

import json
import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

HERE = Path(__file__).parent
VECTORS: dict[str, Any] = json.loads((HERE.parent.parent / "vectors.json").read_text())

# A machine that is busy with other tests may be slow; none of these is about that.
TIMEOUT = 30.0


class Process:
    """A program that says in its log where it listens."""

    def __init__(self, args: list[str], says: str, **env: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
        self.process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, env={**inherited, **env}, cwd=HERE)
        assert self.process.stderr is not None
        log = ""
        for line in self.process.stderr:
            log += line
            if found := re.search(says, line):
                self.url = found[1]
                break
        else:
            raise AssertionError(f"{args} ended:\n{log}")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Service(Process):
    """A headgate, whose clock is turned by hand with `--clock manual`."""

    def __init__(self, policy: str, *options: str) -> None:
        program = os.environ.get("HEADGATE_PROGRAM")
        assert program, "HEADGATE_PROGRAM is not set: it must be a headgate that is built, as by `make build`"
        self._directory = TemporaryDirectory(prefix="headgate-python-")
        file = Path(self._directory.name, "policy.yml")
        file.write_text(policy)
        args = [program, "serve", "--listen", "127.0.0.1:0", "--config", str(file), *options]
        super().__init__(args, r"msg=serving address=(\S+)", HEADGATE_ADMIN_TOKEN=VECTORS["token"])

    def stop(self) -> None:
        super().stop()
        self._directory.cleanup()

    def advance(self, by: str) -> None:
        headers = {"Authorization": "Bearer " + VECTORS["token"]}
        body = json.dumps({"advance": by}).encode()
        urllib.request.urlopen(urllib.request.Request(self.url + "/v1/clock", body, headers), timeout=TIMEOUT).close()


@pytest.fixture(scope="session")
def service() -> Iterator[Callable[..., Service]]:
    """Starts services, one for each policy and options."""
    started: dict[tuple[str, ...], Service] = {}

    def start(policy: str, *options: str) -> Service:
        if (policy, *options) not in started:
            started[policy, *options] = Service(policy, *options)
        return started[policy, *options]

    yield start
    for each in started.values():
        each.stop()
