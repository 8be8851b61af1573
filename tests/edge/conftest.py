"""What several modules of this folder need and what takes seconds to make."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_server import make_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that llama.cpp's servers load."""
    return make_model(tmp_path_factory.mktemp("model"))
