"""What all tests have: short pauses, no cluster of the machine, and a double."""

from __future__ import annotations

import pytest
from kube_double import open_double
from kube_kit import pod


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Neither waits for long nor finds credentials that are the machine's own."""
    monkeypatch.setattr("scavenge_kubernetes.source.PAUSE_S", 0.01)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
async def kube():
    """The API of a cluster with two ready pods."""
    async with open_double() as double:
        double.store.put("pods", pod("a", "10.0.0.1"))
        double.store.put("pods", pod("b", "10.0.0.2"))
        yield double
