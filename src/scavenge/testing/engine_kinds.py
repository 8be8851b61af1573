"""The kinds of engine that a simulated server can have, and how fast each of them could be at best. Pure.

It must not know what an engine is asked for, nor by whom. Both kinds have the same methods.
"""

from __future__ import annotations

import random
from typing import TypeAlias

from scavenge.testing.batching import BatchingEngine, BatchingSettings
from scavenge.testing.engine import Engine, EngineSettings

AnyEngine: TypeAlias = Engine | BatchingEngine
AnySettings: TypeAlias = EngineSettings | BatchingSettings


def make_engine(settings: AnySettings, random: random.Random) -> AnyEngine:
    """An engine with nothing to do."""
    return Engine(settings, random) if isinstance(settings, EngineSettings) else BatchingEngine(settings, random)


def most_tokens_per_s(settings: AnySettings, streams: int) -> float:
    """What so many streams get together at most, when prompts and contexts cost nothing and no noise slows them down.

    It rises with the streams: ``N / (A + B * N)`` and ``N / (max(W, g * N) + O + o * N)``, see the modules of the two.
    """
    if isinstance(settings, EngineSettings):
        step_s = settings.token_s + settings.load_s * streams
    else:
        step_s = max(settings.weights_s, settings.gemm_s * streams)
        step_s += settings.overhead_s + settings.stream_s * streams
    return streams / step_s / (1 - settings.noise)
