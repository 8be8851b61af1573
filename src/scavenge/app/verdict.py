"""How a run ended: its exit code, and why in one line."""

from __future__ import annotations

from scavenge.app.options import RunOptions
from scavenge.runtime.run import Run


def verdict(run: Run, ok: int, options: RunOptions) -> tuple[int, str | None]:
    """The exit code of a run with so many good results, and why; ``None`` when every sample has one."""
    if run.stopped_by is not None:
        return run.stopped_by.exit_code, str(run.stopped_by)
    if run.stalled:
        return max(error.exit_code for error in run.stalled), "; ".join(map(str, run.stalled))
    if run.failed:
        return 1, f"{run.failed} of {ok + run.failed} samples failed"
    if not ok and not options.allow_empty:
        return 2, "not a single sample: the datasets are empty, or num_examples is 0 (--allow-empty permits it)"
    return 0, None
