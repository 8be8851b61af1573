"""Rows of Parquet files and of the Hugging Face hub, through packages that are extras and imported when first used.

Files are read a batch of rows at a time. Values that JSON does not have become text: dates in ISO 8601, decimals in
digits, bytes in hexadecimal.
"""

from __future__ import annotations

import datetime
import importlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from scavenge.core.naming import listed
from scavenge.environments.row import Row, numbered, said

BATCH_ROWS = 256
DEFAULT_SPLIT = "test"


def read_parquet(path: Path) -> Iterator[Row]:
    """The rows of a Parquet file, row group by row group.

    Raises ``ValueError`` when the file is none.
    """
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            batches = file.iter_batches(batch_size=BATCH_ROWS)
            yield from numbered(path.name, (plain(row) for batch in batches for row in batch.to_pylist()))
    except arrow.ArrowInvalid as exc:
        raise ValueError(f"{path.name} is no Parquet file: {said(exc)}") from exc


def read_hub(name: str, split: str | None) -> Iterator[Row]:
    """The rows of one split of a data set of the hub, streamed; downloads while it reads.

    Without a split it is ``test``, or the only one there is. Raises ``ValueError`` when that does not say which,
    ``OSError`` when the hub cannot be read.
    """
    datasets = importlib.import_module("datasets")
    try:
        splits = datasets.load_dataset(name, streaming=True)
        yield from numbered(f"hf:{name}", map(plain, splits[_chosen(name, split, splits)]))
    except (OSError, _SplitError):
        raise
    except Exception as exc:  # the package raises errors of every library below it
        raise OSError(f"hf:{name} cannot be read: {type(exc).__name__}: {said(exc)}") from exc


class _SplitError(ValueError):
    pass


def _chosen(name: str, split: str | None, splits: Mapping[str, object]) -> str:
    wanted = split or (DEFAULT_SPLIT if DEFAULT_SPLIT in splits or len(splits) != 1 else next(iter(splits)))
    if wanted not in splits:
        raise _SplitError(f'hf:{name} has no split "{wanted}"; it has {listed(sorted(splits))}: hf:{name}:SPLIT')
    return wanted


def plain(value: object) -> object:
    """A value with nothing in it but what JSON has."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case bytes():
            return value.hex()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return str(value)
