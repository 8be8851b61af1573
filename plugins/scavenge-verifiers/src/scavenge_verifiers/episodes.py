"""What an episode of ``verifiers.v1`` comes to: a result, or the error that kept it from one. Pure."""

from __future__ import annotations

from typing import Any

from scavenge import Rollout, ScavengeError
from scavenge_verifiers.failures import RolloutFailed, failure, upstream_failure
from scavenge_verifiers.plain import as_json, as_metrics, as_text_json


def error_of(episode: Any, *, complete: bool) -> ScavengeError | None:
    """Why an episode has no result; ``None`` where it has one.

    What the model's side said comes first: that an agent's program then ended badly only follows from it.
    """
    traces = episode.traces
    if complete:
        silent = [trace for trace in traces if trace.num_turns == 0 and trace.calls]
        return _of_the_model(silent) or (RolloutFailed("no request came to a reply") if silent else None)
    failed = [trace for trace in traces if not trace.ok]
    if (error := _of_the_model(failed)) is not None:
        return error
    errors = [*episode.errors, *(error for trace in failed for error in trace.errors)]
    if not errors:
        return RolloutFailed("the environment does not take the episode for complete")
    return failure(errors[0].type, errors[0].message)


def _of_the_model(traces: list[Any]) -> ScavengeError | None:
    """The latest thing that the model's side said in the traces' errors, or in those of their last requests."""
    for trace in reversed(traces):
        last_call = [call.error for call in trace.calls[-1:] if call.error is not None]
        for error in (*reversed(trace.errors), *last_call):
            if (said := upstream_failure(error.message)) is not None:
                return said
    return None


def result_of(episode: Any) -> Rollout:
    """The result. Of several agents, the reward is the mean of those that are trained; metrics have their names."""
    traces = episode.traces
    alone = len(traces) == 1
    counted = [trace for trace in traces if trace.agent.trainable] or traces
    metrics: dict[str, float] = {}
    for name, values in _figures(traces).items():
        metrics[name] = sum(values) / len(values)
    data = episode.task.data
    return Rollout(
        completion=_completion(traces[0]) if alone else [_told(trace) for trace in traces],
        reward=sum(trace.reward for trace in counted) / len(counted) if _is_scored(counted) else None,
        metrics=metrics,
        answer=as_text_json(getattr(data, "answer", None)),
        info=_info(traces[0]) if alone else {},
    )


def _is_scored(traces: list[Any]) -> bool:
    return any(reward is not None for trace in traces for reward in trace.rewards.values())


def _figures(traces: list[Any]) -> dict[str, list[float]]:
    """Rewards, unweighted, and metrics of all agents; those of one that played several times stand together."""
    figures: dict[str, list[float]] = {}
    for trace in traces:
        prefix = "" if len(traces) == 1 else f"{trace.agent.name}."
        scores = {name: reward.score for name, reward in trace.rewards.items() if reward is not None}
        for name, value in as_metrics({**trace.metrics, **scores}).items():
            figures.setdefault(f"{prefix}{name}", []).append(value)
    return figures


def _completion(trace: Any) -> list[Any]:
    """The messages from the model's first on, on the last branch of the conversation."""
    branches = trace.branches
    nodes = branches[-1].nodes if branches else []
    first = next((index for index, node in enumerate(nodes) if node.sampled), len(nodes))
    return [as_json(node.message) for node in nodes[first:]]


def _told(trace: Any) -> dict[str, Any]:
    return {"agent": trace.agent.name, "reward": trace.reward, "messages": _completion(trace), **_info(trace)}


def _info(trace: Any) -> dict[str, Any]:
    return {"stop_condition": trace.stop_condition, "is_truncated": trace.is_truncated, "turns": trace.num_turns}
