"""Names a place in code so that whoever reads it finds it, without telling where it is installed. Pure."""

from __future__ import annotations


def code_place(path: str, module: str, line: int, function: str) -> str:
    """``package/module.py:12 function``: the file from its package on, else by its name alone; never a whole path.

    *path* is the file of the code and *module* the name of its module, where it has one.
    """
    parts = path.split("/")
    depth = module.count(".") + 1 + (parts[-1] == "__init__.py")
    inside = depth <= len(parts) and parts[-depth] == module.partition(".")[0]
    return f"{'/'.join(parts[-depth:]) if inside else parts[-1]}:{line} {function}"
