"""What an admission policy has to hold to, whatever it hears: the checks for authors of policies.

    from scavenge.testing import check_admission_policy

    def test_my_policy_is_one():
        check_admission_policy(lambda: Shy(ShyConfig()), most=256)

With Hypothesis installed, :func:`scavenge.testing.histories` makes the histories and shrinks what fails:

    @given(histories())
    def test_no_history_is_too_much(history):
        check_history(lambda: Shy(ShyConfig()), history, most=256)

versionadded: 0.1
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from scavenge.testing.policy_histories import MakePolicy, check_history, random_history
from scavenge.testing.policy_stories import STORIES


def check_admission_policy(
    make: MakePolicy, *, most: int = 1024, adaptive: bool = True, seeds: Iterable[int] = range(25), events: int = 120
) -> None:
    """Check an admission policy: random histories, one of so many *events* for each seed, and stories of servers.

    *make* gives a new policy each time, *most* is the most that its settings allow. One that is not *adaptive* need not
    ever move. Raises :class:`AssertionError`, which says what was wrong, and for which seed.

    versionadded: 0.1
    """
    for seed in seeds:
        try:
            history = random_history(Random(seed), events)  # noqa: S311 - made up, no secret
            check_history(make, history, most=most)
        except Exception as exc:
            exc.add_note(f"the random history of seed {seed}")
            raise
    for story in STORIES:
        if adaptive or not story.moves:
            story.play(make, most)
