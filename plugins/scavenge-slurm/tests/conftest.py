"""What the tests of this package share."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
from squeue_double import Cluster

hypothesis.settings.register_profile("short", max_examples=60, deadline=None, database=None, derandomize=True)
hypothesis.settings.load_profile("short")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster without jobs."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    return Cluster(folder)
