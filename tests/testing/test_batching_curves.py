"""What the model of an engine gives for how many streams, beside the curves that it was made from."""

from __future__ import annotations

import random

import attrs
import pytest

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.testing.agents import Spread
from scavenge.testing.batching import BatchingSettings
from scavenge.testing.closed_loop import ClosedLoop
from scavenge.testing.closed_loop_case import LoopCase, RequestKind, Workload

H100 = BatchingSettings()
LLAMA_CPU = BatchingSettings(0.05, 0.011, 1.2e-6, 0.0, 0.003, 2e-4, 65_536, 8, 512)


def workload(prompt: float, prompt_cv: float, output: float, output_cv: float, most: int) -> Workload:
    return Workload((RequestKind(Spread(prompt, prompt_cv), Spread(output, output_cv), most),))


CHAT = workload(600, 0.6, 400, 1.0, 4096)


@pytest.mark.parametrize(
    ("server", "asked", "streams", "seconds", "tokens_per_s"),
    [
        pytest.param(H100, CHAT, 32, 400, 2892, id="chat"),
        pytest.param(H100, CHAT, 256, 250, 6676, id="chat at its slots"),
        pytest.param(H100, workload(300, 0.5, 4000, 0.8, 16_384), 96, 1200, 3700, id="reasoning"),
        pytest.param(H100, workload(6000, 0.4, 150, 0.6, 1024), 64, 300, 532, id="long prompts"),
        pytest.param(attrs.evolve(H100, slots=1024), workload(1500, 0.3, 3, 0.3, 8), 32, 100, 50, id="multiple choice"),
        pytest.param(LLAMA_CPU, workload(200, 0.5, 150, 0.6, 512), 8, 3000, 37, id="llama.cpp"),
    ],
)
def test_a_server_gives_what_the_curves_say(server, asked, streams, seconds, tokens_per_s):
    policy = Fixed(FixedSettings(streams))
    report = ClosedLoop(LoopCase(server, asked, seconds), policy, random.Random(1)).run()
    settled = [row.tokens_per_s for row in report.rows if row.at > 0.3 * seconds]
    assert sum(settled) / len(settled) == pytest.approx(tokens_per_s, rel=0.06)
