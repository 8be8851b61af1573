"""How durations and sizes are told, and texts compared that differ in their figures only. Pure."""

from __future__ import annotations

import re


def duration(seconds: float) -> str:
    """A duration as ``0:07``, ``12:34`` or ``1:02:03``; a negative one, from a clock that was set back, is 0."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def precise_duration(seconds: float) -> str:
    """A duration to be read: ``42.0s``, ``3m05s``, ``2h07m``."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def size(size_bytes: float) -> str:
    """So many bytes, to be read, in powers of ten as engines and disks have them: ``512 B``, ``1.2 GB``, ``38 GB``."""
    amount, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}" if unit != "B" and amount < 9.95 else f"{amount:,.0f} {unit}"


def without_numbers(text: str) -> str:
    """A text with its numbers blotted out: a reason that only counts on is no other reason."""
    return re.sub(r"\d+", "#", text)
