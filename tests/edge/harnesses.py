"""Where lm-eval, Inspect and LiteLLM are installed, and what they find around them.

They are in an environment of their own, since they want other versions of packages than the project is tested with.
"""

from __future__ import annotations

import os
from pathlib import Path

from real_parts import real

VARIABLE = "SCAVENGE_HARNESSES"
"""Names another environment with them than the one that continuous integration makes."""
NOT_THEIRS = ("OPENAI_", "INSPECT_", "LITELLM_", "HF_", "PYTHON")
"""How variables begin that would lead them elsewhere, or make them slower."""
ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(os.environ.get(VARIABLE) or ROOT / ".venv-harnesses")


def program(name: str) -> Path:
    """One of the environment's programs."""
    return PREFIX / "bin" / name


needs_harnesses = real(
    "harnesses",
    available=program("inspect").exists() and program("lm_eval").exists(),
    reason=f"there is no environment with them at {PREFIX}: make one as requirements/README.md says",
)


def environ_in(home: Path) -> dict[str, str]:
    """The environment variables of a harness that keeps what it writes in *home*, and asks nobody but us."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_THEIRS)}
    return {
        **kept,
        "HOME": str(home),
        "HF_HOME": str(home / "hub"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
