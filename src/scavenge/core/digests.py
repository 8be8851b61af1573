"""Sets and tables of very many names in little memory: which samples there were, and what is known of each.

A name is kept as a 16-byte digest (two of a million names meet with a chance below 1e-26), packed end to end in one of
4 096 byte arrays, where C code finds it. That is 17 to 18 bytes a name, or 26 with two numbers beside it, no pause for
growing, and about 2 microseconds a look-up at a million names (a ``set`` of ``bytes`` takes 90 to 140 bytes).
Knows nothing of what the names mean.

Invariant: entries of one shard are all ``stride`` bytes long and start at multiples of it.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

import attrs

DIGEST_BYTES = 16
SHARDS = 4096
_PAIR = struct.Struct("<II")


def digest(*parts: str | int) -> bytes:
    """16 bytes that stand for a sequence of names; sequences that differ in any way have different ones."""
    hasher = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        name = str(part).encode("utf-8", "surrogatepass")
        hasher.update(b"%d:%b" % (len(name), name))
    return hasher.digest()


@attrs.define(eq=False)
class _Shards:
    """Entries of ``stride`` bytes, each beginning with a digest."""

    stride: int
    _count: int = attrs.field(default=0, init=False)
    _shards: list[bytearray | None] = attrs.field(factory=lambda: [None] * SHARDS, init=False, repr=False)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: bytes) -> bool:
        return self.find(key)[1] >= 0

    def find(self, key: bytes) -> tuple[bytearray | None, int]:
        """The shard that a digest belongs to, and where in it the digest's entry starts; -1: nowhere."""
        shard = self._shards[key[0] << 4 | key[1] >> 4]
        if shard is None:
            return None, -1
        at = shard.find(key)
        while at > 0 and at % self.stride:
            at = shard.find(key, at + 1)
        return shard, at

    def append(self, key: bytes, entry: bytes) -> None:
        """Add an entry whose digest is not there yet."""
        where = key[0] << 4 | key[1] >> 4
        shard = self._shards[where]
        if shard is None:
            self._shards[where] = bytearray(entry)
        else:
            shard += entry
        self._count += 1

    def remove(self, shard: bytearray, at: int) -> None:
        """Take an entry out: the shard's last one takes its place."""
        last = shard[-self.stride :]
        shard[at : at + self.stride] = last
        del shard[-self.stride :]
        self._count -= 1


@attrs.define(eq=False)
class DigestSet:
    """A set of digests."""

    _shards: _Shards = attrs.field(factory=lambda: _Shards(DIGEST_BYTES), init=False)

    def __len__(self) -> int:
        return len(self._shards)

    def __contains__(self, key: bytes) -> bool:
        return key in self._shards

    def add(self, key: bytes) -> bool:
        """Add a digest; whether it was new."""
        if key in self._shards:
            return False
        self._shards.append(key, key)
        return True

    def discard(self, key: bytes) -> bool:
        """Take a digest out; whether it was there."""
        shard, at = self._shards.find(key)
        if shard is None or at < 0:
            return False
        self._shards.remove(shard, at)
        return True


@attrs.define(eq=False)
class DigestPairs:
    """Two counts (below 2**32) for each digest."""

    _shards: _Shards = attrs.field(factory=lambda: _Shards(DIGEST_BYTES + _PAIR.size), init=False)

    def __len__(self) -> int:
        return len(self._shards)

    def get(self, key: bytes) -> tuple[int, int]:
        """The counts of a digest; (0, 0) for one that has none."""
        shard, at = self._shards.find(key)
        if shard is None or at < 0:
            return 0, 0
        first, second = _PAIR.unpack_from(shard, at + DIGEST_BYTES)
        return first, second

    def put(self, key: bytes, first: int, second: int) -> None:
        """Set the counts of a digest."""
        shard, at = self._shards.find(key)
        if shard is None or at < 0:
            self._shards.append(key, key + _PAIR.pack(first, second))
        else:
            _PAIR.pack_into(shard, at + DIGEST_BYTES, first, second)
