"""The packages in ``site`` are installed, for this process and those that it starts."""

from __future__ import annotations

import importlib
import os

import pytest
from verifiers_kit import SITE


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH", "")])))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    importlib.invalidate_caches()
