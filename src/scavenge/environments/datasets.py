"""Where an evaluation's rows come from: a reference to a dataset, and its rows as a stream.

It decides which reader a reference needs, and what is wrong with one row as opposed to the whole dataset. It must not
know what a row is for. No reader keeps a row after it has handed it out.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import attrs

from scavenge.core.naming import listed
from scavenge.environments import columnar, rowfiles
from scavenge.environments.row import Row

WHOLE_BYTES = 256 * 2**20
"""A file up to this size is digested whole, in a quarter of a second."""
PART_BYTES = 2**20
BLOCK_BYTES = 2**20

_HUB_NAME = re.compile(r"hf:(?P<name>[\w.-]+(?:/[\w.-]+)?)(?::(?P<split>[\w.-]+))?", re.ASCII)
_READERS = {
    ".jsonl": rowfiles.read_jsonl,
    ".json": rowfiles.read_json_array,
    ".csv": rowfiles.read_csv,
    ".parquet": columnar.read_parquet,
}


@attrs.frozen
class DatasetRef:
    """A dataset as ``env_args`` names it: a file, or a data set of the Hugging Face hub."""

    text: str
    path: Path | None = None
    hub_name: str = ""
    split: str | None = None

    @classmethod
    def from_text(cls, text: str, base_dir: Path) -> DatasetRef:
        """Read ``hf:NAME[:SPLIT]`` or a path relative to ``base_dir``.

        Raises ``ValueError`` for a name that can be neither.
        """
        if text.startswith("hf:"):
            if (found := _HUB_NAME.fullmatch(text)) is None:
                raise ValueError(f'expected "hf:NAME" or "hf:NAME:SPLIT", got "{text}"')
            return cls(text, hub_name=found["name"], split=found["split"])
        if not text or "\0" in text:
            raise ValueError("expected the path of a dataset, or hf:NAME")
        path = base_dir / text
        if path.suffix.lower() not in _READERS:
            raise ValueError(f'unknown kind of dataset "{text}"; valid: {listed(_READERS)} and hf:NAME')
        return cls(text, path=path)

    def check(self) -> None:
        """Look whether the dataset is there, as far as that needs no network.

        Raises ``ValueError`` that says what is missing.
        """
        if self.path is None:
            _need("datasets", "datasets", self.text)
            return
        if self.path.suffix.lower() == ".parquet":
            _need("pyarrow", "parquet", self.text)
        if self.path.exists() and not self.path.is_file():
            raise ValueError(f"{self.path} is a folder or device; name a file")
        try:
            self.path.open("rb").close()
        except OSError as exc:
            raise ValueError(f"{self.path} cannot be read: {exc.strerror}") from exc

    def rows(self) -> Iterator[Row]:
        """The rows in their order; blocks while it reads.

        Raises ``OSError`` when the dataset cannot be read on, ``ValueError`` when it is none of its kind.
        """
        if self.path is None:
            return columnar.read_hub(self.hub_name, self.split)
        return _READERS[self.path.suffix.lower()](self.path)

    def fingerprint(self) -> str | None:
        """A digest of the file; of a huge one, of its size, its beginning and its end. ``None`` for a hub's data set.

        Blocks while it reads. Raises ``OSError``.
        """
        if self.path is None:
            return None
        size = self.path.stat().st_size
        hasher = blake2b(f"{size}:".encode(), digest_size=16)
        with self.path.open("rb") as file:
            left = size if size <= WHOLE_BYTES else PART_BYTES
            while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
                hasher.update(block)
                left -= len(block)
            if size > WHOLE_BYTES:
                file.seek(-PART_BYTES, os.SEEK_END)
                hasher.update(file.read())
        return hasher.hexdigest()

    def __str__(self) -> str:
        return self.text


def _need(module: str, extra: str, text: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ValueError(f'"{text}" needs the package {module}: install scavenge[{extra}]')
