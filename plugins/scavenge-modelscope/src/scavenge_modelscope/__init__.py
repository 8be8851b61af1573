"""Archives of container images in a repository at ModelScope."""

from __future__ import annotations

from scavenge.plugin import ImageStoreType, hookimpl
from scavenge_modelscope.config import ModelScopeConfig
from scavenge_modelscope.store import open_modelscope

__all__ = ["ModelScopeConfig", "open_modelscope"]


@hookimpl
def scavenge_image_stores() -> list[ImageStoreType]:
    """Name the one kind of store."""
    return [ImageStoreType(name="modelscope", config=ModelScopeConfig, open=open_modelscope, address="repo")]
