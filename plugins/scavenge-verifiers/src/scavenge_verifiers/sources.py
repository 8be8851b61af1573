"""What a package's source defines, found by reading it: a function or a class by its name, through its own imports.

It must not import anything of the package. What it cannot follow it says so, and never guesses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

_MOST_HOPS = 8


class Unreadable(Exception):
    """A module's source cannot be read or is no Python; the text says which and why."""


@attrs.frozen
class Definition:
    """What a name stands for: ``node`` is its function or class. ``None``: it has one, but the source does not tell."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None = None

    @property
    def bases(self) -> list[str]:
        """The last parts of the names of a class's bases: ``Taskset`` for ``vf.Taskset[Task, Config]``."""
        return [_last_name(base) for base in self.node.bases] if isinstance(self.node, ast.ClassDef) else []


_UNTOLD = Definition()


@attrs.define(eq=False)
class Package:
    """A top-level module, or a folder of modules, named ``name``; ``origin`` is the file of the module itself."""

    name: str
    origin: Path
    is_folder: bool
    _trees: dict[str, ast.Module] = attrs.field(factory=dict, init=False)

    def find(self, module: str, name: str, hops: int = _MOST_HOPS) -> Definition | None:
        """What *name* is in a module of this package; ``None`` when it has no such name.

        Raises :class:`Unreadable`.
        """
        found: Definition | None = None
        for node in _statements(self._tree(module).body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found = Definition(node) if node.name == name else found
            elif isinstance(node, ast.ImportFrom):
                found = self._imported(node, module, name, hops) or found
            elif name in _assigned(node):
                found = _UNTOLD
        return found

    def exported(self, module: str) -> list[str]:
        """The names in a module's ``__all__``, as far as it is a plain list of strings."""
        names: list[str] = []
        for node in _statements(self._tree(module).body):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and "__all__" in _assigned(node):
                items = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else []
                values = [item.value for item in items if isinstance(item, ast.Constant)]
                names += [value for value in values if isinstance(value, str)]
        return names

    def _imported(self, node: ast.ImportFrom, module: str, name: str, hops: int) -> Definition | None:
        original = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), None)
        if original is None:
            return None
        source = self._source_of(node, module)
        if source is None or hops == 0 or self._file(source) is None:
            return _UNTOLD
        return self.find(source, original, hops - 1) or _UNTOLD

    def _source_of(self, node: ast.ImportFrom, module: str) -> str | None:
        """The full name of the module that is imported from, if it is in this package."""
        if node.level == 0:
            source = node.module or ""
        else:
            here = module.split(".")
            if self._is_folder(module):
                here = [*here, ""]
            base = here[: len(here) - node.level]
            source = ".".join([*base, *([node.module] if node.module else [])])
        return source if source == self.name or source.startswith(f"{self.name}.") else None

    def _is_folder(self, module: str) -> bool:
        file = self._file(module)
        return self.is_folder and file is not None and file.name == "__init__.py"

    def _file(self, module: str) -> Path | None:
        if module == self.name:
            return self.origin
        if not self.is_folder:
            return None
        inner = self.origin.parent.joinpath(*module.split(".")[1:])
        candidates = (inner.with_name(f"{inner.name}.py"), inner / "__init__.py")
        return next((file for file in candidates if file.is_file()), None)

    def _tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            file = self._file(module) or self.origin
            try:
                self._trees[module] = ast.parse(file.read_bytes(), filename=str(file))
            except (OSError, SyntaxError, ValueError) as exc:
                raise Unreadable(f"{file} cannot be read: {exc}") from exc
        return self._trees[module]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module's level, those under ``if``, ``try`` and ``with`` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for inner in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _assigned(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    else:
        return []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
