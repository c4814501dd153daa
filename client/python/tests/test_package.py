"""The package as it is released."""

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
from conftest import HERE, VECTORS
from flit_core import buildapi

import headgate


def test_bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel needs nothing else, and the source has what tests it."""
    monkeypatch.chdir(HERE.parent)
    wheel = tmp_path / buildapi.build_wheel(str(tmp_path))
    with tarfile.open(tmp_path / buildapi.build_sdist(str(tmp_path))) as source:
        assert any(name.endswith("/tests/test_vectors.py") for name in source.getnames())
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", str(wheel)]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(install, check=True, env=bare)
    program = "import headgate, headgate.asgi, headgate.wsgi; print(headgate.__version__)"
    said = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, env=bare)
    assert said.stdout == headgate.__version__ + "\n"


def test_vectors_are_all_run() -> None:
    """A part of the vectors that nobody runs shows here."""
    parts = {"about", "token", "servers", "answers", "calls", "requests", "addresses", "api_keys", "hosts"}
    assert set(VECTORS) == parts
