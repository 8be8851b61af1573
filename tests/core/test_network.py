"""Whose silence it is: a host's own, or that of this machine's network."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scavenge.core.network import FRESH_S, Heard, NetworkWatch, Verdict, remote_host

THEIRS, UNDECIDED, OURS = Verdict.THEIRS, Verdict.UNDECIDED, Verdict.OURS
NEVER = float("-inf")


def watch_of(**heard_at: float) -> NetworkWatch:
    """A watch that has heard these hosts."""
    watch = NetworkWatch()
    for host, at in heard_at.items():
        watch.on_heard(host, at, at)
    return watch


# --- one host is silent


def test_a_host_that_is_silent_while_another_is_heard_is_to_blame():
    watch = watch_of(a=90.0, b=109.5)
    assert watch.on_silence("a", 100.0, 110.0) is THEIRS
    assert watch.alive == 1
    assert watch.down_since is None


def test_a_lone_host_cannot_be_told_from_the_network_and_is_to_blame():
    watch = watch_of(a=90.0)
    assert watch.on_silence("a", 100.0, 110.0) is THEIRS
    assert watch.alive == 0


def test_a_lone_host_that_this_machine_cannot_send_to_is_not_to_blame():
    watch = watch_of(a=90.0)
    assert watch.on_silence("a", 100.0, 100.0, certain=True) is OURS
    assert watch.down_since == 100.0


def test_a_blamed_host_that_this_machine_cannot_send_to_later_tells_of_the_network():
    watch = watch_of(a=90.0)
    assert watch.on_silence("a", 100.0, 110.0) is THEIRS
    assert watch.on_silence("a", 120.0, 120.0, certain=True) is OURS
    assert watch.down_since == 120.0


@pytest.mark.parametrize("certain", [False, True])
def test_a_host_that_was_never_heard_is_no_sign_of_an_outage(certain: bool):
    watch = NetworkWatch()
    assert watch.on_silence("mispelt", 0.0, 0.0, certain) is THEIRS
    assert watch.down_since is None
    watch.on_heard("a", 1.0, 1.0)
    assert watch.on_silence("mispelt", 2.0, 2.0, certain) is UNDECIDED
    assert watch.on_heard("a", 2.1, 2.1) == Heard(theirs=("mispelt",))


def test_a_host_that_is_heard_on_another_connection_is_silent_here_only_and_stays_alive():
    watch = watch_of(a=109.9, b=50.0)
    assert watch.on_silence("a", 20.0, 110.0) is THEIRS
    assert watch.alive == 2
    assert not watch.is_undecided("a")


def test_what_was_heard_before_a_long_silence_ended_is_no_evidence_so_a_fleet_is_not_blamed_one_by_one():
    watch = watch_of(a=100.0, b=117.0, c=117.5)  # the network goes at 118; a thinks since 100
    assert watch.on_silence("a", 100.0, 700.0) is UNDECIDED
    assert watch.on_silence("b", 701.0, 711.0) is UNDECIDED
    assert watch.on_silence("c", 701.0, 711.0) is OURS
    assert watch.down_since == 117.5


def test_at_the_very_instant_another_host_counts_but_the_silent_one_itself_does_not():
    watch = watch_of(a=5.0, b=5.0)
    assert watch.on_silence("a", 5.0, 5.0) is THEIRS
    watch = watch_of(a=4.0, b=4.0)
    assert watch.on_silence("a", 5.0, 5.0) is UNDECIDED
    assert watch.on_heard("a", 5.0, 5.0) == Heard()
    assert watch.is_undecided("a")


# --- undecided


def test_others_that_answer_decide_against_the_silent_hosts():
    watch = watch_of(a=90.0, b=90.0, c=90.0)
    assert watch.on_silence("a", 100.0, 110.0) is UNDECIDED
    assert watch.on_silence("b", 101.0, 111.0) is UNDECIDED
    assert watch.on_heard("c", 109.5, 111.0) == Heard(theirs=("a",)), "it is older than the doubt about b"
    assert watch.on_heard("c", 112.0, 112.0) == Heard(theirs=("b",))
    assert watch.alive == 1


def test_a_host_that_is_heard_after_all_is_no_longer_suspected():
    watch = watch_of(a=90.0, b=90.0)
    assert watch.on_silence("a", 100.0, 110.0) is UNDECIDED
    assert watch.on_heard("a", 110.5, 110.5) == Heard()
    assert not watch.is_undecided("a")
    assert watch.on_silence("b", 105.0, 110.6) is THEIRS


def test_only_hosts_that_are_alive_and_not_silent_could_tell():
    watch = watch_of(a=90.0, b=90.0, c=90.0, dead=80.0)
    assert watch.on_silence("dead", 85.0, 90.5) is THEIRS
    assert watch.on_silence("a", 100.0, 110.0) is UNDECIDED
    assert [host for host in ("a", "b", "c", "dead", "unknown") if watch.could_tell(host)] == ["b", "c"]
    watch.on_heard("a", 111.0, 111.0)
    assert watch.could_tell("a")
    watch.forget("a")
    assert not watch.could_tell("a")


def test_old_news_of_a_host_that_was_blamed_does_not_bring_it_back():
    watch = watch_of(a=90.0, b=110.0)
    assert watch.on_silence("a", 100.0, 110.0) is THEIRS
    watch.on_heard("a", 95.0, 111.0)
    assert watch.alive == 1
    watch.on_heard("a", 111.0, 111.0)
    assert watch.alive == 2


def test_a_host_that_flaps_is_blamed_each_time():
    watch = watch_of(a=0.0, b=0.0)
    for start in range(10, 60, 10):
        assert watch.on_silence("a", start, start + 3.0) is UNDECIDED
        assert watch.on_heard("b", start + 3.1, start + 3.1) == Heard(theirs=("a",))
        assert watch.on_heard("a", start + 5.0, start + 5.0) == Heard()
    assert watch.alive == 2


def test_whoever_was_undecided_because_of_a_forgotten_host_is_judged_at_the_next_question():
    watch = watch_of(a=0.0, b=0.0)
    assert watch.on_silence("a", 10.0, 20.0) is UNDECIDED
    watch.forget("b")
    assert watch.is_undecided("a")
    assert watch.on_silence("x", 21.0, 31.0) is UNDECIDED, "x was never heard, and a alone cannot tell"
    assert watch.on_silence("a", 22.0, 32.0) is THEIRS
    watch = watch_of(a=0.0, b=0.0, c=0.0)
    assert [watch.on_silence(host, 10.0, 20.0) for host in ("a", "c")] == [UNDECIDED, UNDECIDED]
    watch.forget("b")
    assert watch.on_silence("x", 12.0, 22.0) is OURS
    assert watch.down_since == 10.0


def test_a_host_that_comes_back_after_it_was_forgotten_is_judged_by_what_was_heard_of_others():
    watch = watch_of(a=0.0, b=0.0)
    watch.on_heard("a", 110.0, 110.0)
    watch.on_heard("b", 109.5, 110.1)
    watch.forget("a")
    assert watch.on_silence("a", 100.0, 110.2) is THEIRS


# --- the network is lost, and back


def test_the_network_is_lost_when_every_alive_host_is_silent_and_back_with_the_first_that_is_heard():
    watch = watch_of(a=99.0, b=99.0, dead=50.0)
    assert watch.on_silence("dead", 60.0, 99.5) is THEIRS
    assert watch.on_silence("a", 100.0, 110.0) is UNDECIDED
    assert watch.on_silence("b", 101.0, 111.0) is OURS
    assert watch.down_since == 100.0
    assert not watch.is_undecided("a")
    assert watch.on_silence("dead", 105.0, 115.0) is OURS
    assert watch.on_silence("new", 105.0, 115.0) is OURS
    assert watch.on_silence("a", 112.0, 122.0) is OURS
    assert not watch.could_tell("a")
    assert watch.on_heard("b", 130.0, 131.0) == Heard(lost_s=31.0), "nobody is blamed for an outage"
    assert watch.could_tell("a")
    assert watch.down_since is None
    assert watch.alive == 2


def test_a_host_that_really_died_is_found_out_after_an_outage():
    watch = watch_of(a=90.0, b=90.0, c=90.0)
    assert watch.on_silence("a", 100.0, 110.0) is UNDECIDED  # really dead; then the network goes
    assert watch.on_silence("b", 110.0, 120.0) is UNDECIDED
    assert watch.on_silence("c", 110.0, 120.0) is OURS
    assert watch.on_heard("c", 200.0, 200.0).lost_s == 100.0
    assert watch.on_heard("b", 200.1, 200.1) == Heard()
    assert watch.on_silence("a", 200.2, 210.0) is UNDECIDED
    assert watch.on_heard("b", 210.0, 210.0) == Heard(theirs=("a",))


def test_an_outage_is_over_when_a_host_is_heard_that_nobody_knew():
    watch = watch_of(a=0.0, b=0.0)
    assert [watch.on_silence(host, 10.0, 20.0) for host in ("a", "b")] == [UNDECIDED, OURS]
    assert watch.on_heard("new", 25.0, 25.0) == Heard(lost_s=15.0)
    assert watch.on_silence("a", 24.0, 26.0) is THEIRS


def test_old_news_does_not_end_an_outage():
    watch = watch_of(a=0.0, b=0.0)
    assert [watch.on_silence(host, 10.0, 20.0) for host in ("a", "b")] == [UNDECIDED, OURS]
    assert watch.on_heard("a", 10.5, 21.0) == Heard()
    assert watch.on_heard("new", 11.0, 21.0) == Heard()
    assert watch.on_heard("new", NEVER, 21.0) == Heard()
    assert watch.down_since == 10.0


def test_what_was_just_heard_of_a_host_does_not_speak_against_the_outage_that_follows():
    watch = watch_of(a=0.0, b=0.0)
    assert [watch.on_silence(host, 10.0, 20.0) for host in ("a", "b")] == [UNDECIDED, OURS]
    watch.on_heard("new", 18.9, 20.0)
    assert watch.on_silence("new", 18.5, 19.8) is OURS


def test_an_outage_outlasts_the_hosts_that_told_of_it():
    watch = watch_of(a=0.0, b=0.0)
    assert [watch.on_silence(host, 10.0, 20.0) for host in ("a", "b")] == [UNDECIDED, OURS]
    watch.forget("a")
    watch.forget("b")
    watch.forget("nobody")
    assert watch.alive == 0
    assert watch.down_since == 10.0
    assert watch.on_heard("c", 30.0, 30.0) == Heard(lost_s=20.0)


# --- any order of things

HOSTS = st.sampled_from("abcd")
TICK_S = 1 / 1024
"""The world does not change within an instant: what is heard then is older than what is not."""


class NetworkMachine(RuleBasedStateMachine):
    """A world of hosts that live and die and a network that comes and goes, asked truthfully."""

    @initialize()
    def begin(self) -> None:
        self.watch = NetworkWatch()
        self.now = 100.0
        self.up = set("abcd")
        self.network = True
        self.heard: list[tuple[str, float]] = []  # all that was ever told
        self.alive: set[str] = set()
        self.remembered: set[str] = set()
        self.verdicts: list[Verdict] = []

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 7.0, 600.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(host=HOSTS)
    def flip_host(self, host: str) -> None:
        self.now += TICK_S
        self.up ^= {host}

    @rule()
    def flip_network(self) -> None:
        self.now += TICK_S
        self.network = not self.network

    @rule(host=HOSTS, took_s=st.sampled_from([0.0, 0.5, 3.0, 10.0]), certain=st.booleans())
    def ask(self, host: str, took_s: float, certain: bool) -> None:
        since = self.now
        self.now += took_s
        if self.network and host in self.up:
            self.hear(host)
        else:
            self.miss(host, since, certain and not self.network)

    @rule(host=HOSTS, age_s=st.sampled_from([0.5, 5.0]))
    def tell_old_news(self, host: str, age_s: float) -> None:
        known = [at for name, at in self.heard if name == host and at <= self.now - age_s]
        if known and host in self.remembered:
            assert self.watch.on_heard(host, known[-1], self.now) == Heard()

    @rule(host=HOSTS)
    def forget(self, host: str) -> None:
        self.watch.forget(host)
        self.alive.discard(host)
        self.remembered.discard(host)

    def hear(self, host: str) -> None:
        undecided = {name for name in "abcd" if self.watch.is_undecided(name)}
        was_down = self.watch.down_since is not None
        news = self.watch.on_heard(host, self.now, self.now)
        self.heard.append((host, self.now))
        self.remembered.add(host)
        if news.lost_s is not None:
            assert was_down
            assert news.lost_s >= 0
            assert news.theirs == ()
        assert set(news.theirs) <= undecided - {host}
        self.alive = (self.alive | {host}) - set(news.theirs)

    def miss(self, host: str, since: float, certain: bool) -> None:
        others = self.alive - {host}
        just_heard = any(name != host and at >= max(since, self.now - FRESH_S) for name, at in self.heard)
        itself = any(name == host and at > max(since, self.now - FRESH_S) for name, at in self.heard)
        was_down = self.watch.down_since is not None
        verdict = self.watch.on_silence(host, since, self.now, certain)
        self.verdicts.append(verdict)
        assert not was_down or verdict is OURS
        if verdict is THEIRS and not itself:
            assert just_heard or not others
            self.alive.discard(host)
        if verdict is UNDECIDED:
            assert others
            assert any(self.watch.could_tell(name) for name in others) or len(others) == 1
            assert not just_heard
            assert self.watch.is_undecided(host)
        if verdict is OURS and not was_down:
            assert certain or len(self.alive) > 1
            assert not just_heard

    @precondition(lambda self: self.up)
    @rule()
    def ask_all_until_it_settles(self) -> None:
        """Once the network works, the dead are blamed and the living are not, whatever came before."""
        self.network = True
        self.now += 2 * FRESH_S
        for _ in range(2):
            for host in "abcd":
                self.ask(host, 0.1, certain=False)
        assert self.watch.down_since is None
        for host in "abcd":
            self.ask(host, 0.0, certain=False)
        assert self.alive == self.up
        assert not any(self.watch.is_undecided(host) for host in "abcd")

    @rule(certain=st.booleans(), order=st.permutations("abcd"))
    def lose_the_network(self, certain: bool, order: list[str]) -> None:
        """An outage blames no host that was alive, and is told when all of them were asked."""
        self.network = False
        self.now += 2 * FRESH_S
        alive, begun = set(self.alive), len(self.verdicts)
        for host in order:
            if host in alive:
                self.ask(host, 1.0, certain)
        if len(alive) > 1:
            assert THEIRS not in self.verdicts[begun:]
            assert self.watch.down_since is not None
            assert self.alive == alive

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "watch"):
            return
        assert self.watch.alive == len(self.alive)
        down_since = self.watch.down_since
        assert down_since is None or not any(self.watch.is_undecided(host) for host in "abcd")
        assert down_since is None or max((at for _, at in self.heard), default=NEVER) <= down_since <= self.now


TestNetworkMachine = NetworkMachine.TestCase


# --- hosts


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://10.0.0.7:8000/v1", "10.0.0.7"),
        ("https://GPU-1.example.org/v1", "gpu-1.example.org"),
        ("http://[2001:db8::1]:8000/v1", "2001:db8::1"),
        ("http://[::ffff:10.0.0.7]/v1", "::ffff:10.0.0.7"),
        ("http://user:password@proxy.lan:3128", "proxy.lan"),
        ("http://localhost.example.org", "localhost.example.org"),
        ("http://localhost:8000/v1", None),
        ("http://LOCALHOST./v1", None),
        ("http://llm.localhost/v1", None),
        ("http://127.0.0.1:8000/v1", None),
        ("http://127.9.9.9/v1", None),
        ("http://[::1]:8000/v1", None),
        ("http://[::ffff:127.0.0.1]/v1", None),
        ("http://0.0.0.0:8000/v1", None),
        ("http://[::]:8000", None),
        ("http://[nonsense/v1", None),
        ("no url", None),
        ("", None),
    ],
)
def test_only_hosts_that_are_reached_over_a_network_tell_of_it(url: str, host: str | None):
    assert remote_host(url) == host
