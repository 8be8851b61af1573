"""What several modules of this folder need and what takes seconds to make."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from llama_server import make_model
from real_engine import PRODUCTS, RealEngine, open_engine
from real_registry import RealRegistry, open_registry


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


@pytest.fixture(scope="session", params=PRODUCTS)
def real_engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    """A real engine for each product in turn; its tests share it, so they use names of their own."""
    with open_engine(request.param, tmp_path_factory.mktemp(request.param)) as engine:
        yield engine


@pytest.fixture(scope="session")
def real_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """A real registry that anybody may read and write."""
    with open_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="session")
def locked_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """A real registry that wants a password."""
    with open_registry(tmp_path_factory.mktemp("registry"), password=True) as registry:
        yield registry
