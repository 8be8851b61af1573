"""What several modules of this folder need and what takes seconds to make."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from llama_server import make_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that llama.cpp's servers load."""
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Whoever signs the certificates of the servers here."""
    return trustme.CA()


@pytest.fixture(scope="session")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    """What a server on 127.0.0.1 shows to clients that trust the authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context
