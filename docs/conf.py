"""Sphinx: the pages are Markdown (MyST), and a warning is an error when they are built by `nox -s docs`."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "scavenge"
release = version = version_of("scavenge")
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
html_theme = "alabaster"
html_title = f"scavenge {release}"
html_theme_options = {"description": "LLM evaluations on whatever inference servers happen to be alive"}
myst_heading_anchors = 3
highlight_language = "none"
nitpicky = True
