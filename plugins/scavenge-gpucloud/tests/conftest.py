"""One double for all tests, and no proxy between the tests and it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpucloud_double import TOKEN, Double


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUCLOUD_TEST_KEY", TOKEN)


@pytest.fixture(scope="session")
def clouds() -> Iterator[Double]:
    with Double().serve() as served:
        yield served


@pytest.fixture
def double(clouds: Double) -> Double:
    clouds.reset()
    return clouds
