"""From the settings of the evaluations to what is played: their plans and how their requests are made."""

from __future__ import annotations

from collections.abc import Sequence

from scavenge.app.parts import Parts
from scavenge.config.schema import EvalSettings
from scavenge.core.digests import DigestSet
from scavenge.core.plan import Plan
from scavenge.core.retry import RetrySettings
from scavenge.runtime.fleet import Fleet
from scavenge.runtime.hosting import Host
from scavenge.runtime.runner import EvalJob
from scavenge.runtime.sending import RequestSettings


def make_jobs(parts: Parts, hosts: Sequence[Host], fleet: Fleet, done: DigestSet) -> list[EvalJob]:
    """A job for each evaluation and its host, in their order, without what is *done* already."""
    settings = parts.settings
    return [
        EvalJob(
            one.name,
            one.env_id,
            host,
            Plan(one.name, one.env_id, one.rollouts_per_example, one.num_examples, done, settings.order),
            fleet.pools[one.pool_id],
            _request_settings(one),
            one.max_concurrent,
            one.rollout_retries,
        )
        for one, host in zip(settings.evals, hosts, strict=True)
    ]


def _request_settings(one: EvalSettings) -> RequestSettings:
    """How the requests of an evaluation are made."""
    retry = RetrySettings(one.max_retries, one.max_lost)
    return RequestSettings(one.sampling_args, one.stream, one.idle_timeout, one.request_timeout, retry)
