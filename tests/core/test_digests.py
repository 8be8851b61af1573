"""Sets and tables of digests behave like Python's own, in far less memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scavenge.core.digests import DigestPairs, DigestSet, digest

# Few first bytes and many repeats, so that entries share shards and occur inside and across one another.
KEYS = st.binary(min_size=14, max_size=14).map(lambda rest: b"\0\0" + rest) | st.sampled_from(
    [bytes(16), b"\0\0" + b"\1" * 14, b"\0" * 8 + b"\1" * 8, (b"\0" * 15) + b"\1", b"\0\0\1" * 5 + b"\0"]
)


class DigestMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.set, self.names = DigestSet(), set()
        self.pairs, self.numbers = DigestPairs(), {}

    @rule(key=KEYS)
    def add(self, key):
        assert self.set.add(key) == (key not in self.names)
        self.names.add(key)

    @rule(key=KEYS)
    def discard(self, key):
        assert self.set.discard(key) == (key in self.names)
        self.names.discard(key)

    @rule(key=KEYS, first=st.integers(0, 2**32 - 1), second=st.integers(0, 3))
    def put(self, key, first, second):
        self.pairs.put(key, first, second)
        self.numbers[key] = (first, second)

    @rule(key=KEYS)
    def look(self, key):
        assert (key in self.set) == (key in self.names)
        assert self.pairs.get(key) == self.numbers.get(key, (0, 0))

    @invariant()
    def same_size(self):
        assert (len(self.set), len(self.pairs)) == (len(self.names), len(self.numbers))


TestDigests = DigestMachine.TestCase


def test_a_digest_depends_on_where_one_part_ends():
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", ""), digest("2:ab")}) == 5
    assert digest("a", 1) == digest("a", "1")
    assert len(digest("\ud800")) == 16


@pytest.mark.parametrize(("make", "most"), [(DigestSet, 20), (DigestPairs, 30)])
def test_a_name_takes_few_bytes_beyond_the_first_ten_thousand(make, most):
    table = make()
    keys = [digest(n) for n in range(40_000)]
    put = table.add if isinstance(table, DigestSet) else lambda key: table.put(key, 1, 1)
    tracemalloc.start()
    for key in keys[:10_000]:
        put(key)
    before = tracemalloc.get_traced_memory()[0]
    for key in keys[10_000:]:
        put(key)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (after - before) / 30_000 < most
    assert len(table) == len(keys)
    if isinstance(table, DigestSet):
        assert all(key in table for key in keys[::7])
        assert not any(table.add(key) for key in keys[::7])
    else:
        assert all(table.get(key) == (1, 1) for key in keys[::7])
    assert digest("another") not in table._shards
