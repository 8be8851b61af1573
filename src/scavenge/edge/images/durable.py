"""Puts names of files on disk, so that they are there after a power cut. Decides nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Put a folder's list of names on disk, where its file system can do that; blocks.

    Raises ``OSError`` for a folder that cannot be opened.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems cannot, and promise other things
            os.fsync(fd)
    finally:
        os.close(fd)
