"""What to say when ``squeue`` cannot tell: its own words on one line, and the remedy. Pure."""

from __future__ import annotations

from scavenge_slurm.command import Ended
from scavenge_slurm.config import SlurmConfig

_MOST_CHARACTERS = 300

_USE_TEXT = 'set format = "text"'

_REMEDIES = (
    (("invalid user",), "correct `user`"),
    (("unable to contact", "slurm_load_jobs", "connection refused"), "slurmctld does not answer; it is asked again"),
    (("permission denied", "host key", "could not resolve"), "ssh has to work there without asking anything"),
)
_JSON_REMEDIES = (
    (("unrecognized option", "invalid option", "plugin", "serializer", "has no", "more than"), _USE_TEXT),
    (("is no json",), "let nothing else print there, such as a shell's start-up file"),
)


def said_by(ended: Ended) -> str:
    """How a command ended, and what it said on its standard error."""
    said = " ".join(ended.error.decode("utf-8", "replace").split())
    text = said if len(said) <= _MOST_CHARACTERS else f"{said[:_MOST_CHARACTERS]}…"
    how = f"ended by signal {-ended.code}" if ended.code is not None and ended.code < 0 else f"exit code {ended.code}"
    return f"{how}: {text}" if text else f"{how}, and it said nothing"


def remedy(config: SlurmConfig, text: str) -> str:
    """What may help against a trouble, to stand behind it."""
    known = (*_REMEDIES, *(_JSON_REMEDIES if config.format == "json" else ()))
    lower = text.lower()
    return next((f"; {what}" for signs, what in known if any(sign in lower for sign in signs)), "")
