"""What scavenge itself adds, through the same hooks as any plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from scavenge.core.choice import choice
from scavenge.core.limits.aimd import Aimd, AimdSettings
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.limits.gradient2 import Gradient2, Gradient2Settings
from scavenge.core.limits.pi import Pi, PiSettings
from scavenge.core.limits.tide import Tide, TideSettings
from scavenge.core.numeric import numeric
from scavenge.core.score import exact_match, includes, regex, unscored
from scavenge.edge.images.folder_store import FolderConfig, FolderFiles
from scavenge.edge.images.http_config import HttpStoreConfig
from scavenge.edge.images.http_store import open_http_files
from scavenge.edge.images.registry_store import RegistryStoreConfig, open_registry_store
from scavenge.edge.sources.command import CommandSourceConfig, open_command
from scavenge.edge.sources.file import FileSource, FileSourceConfig
from scavenge.edge.sources.http import open_http
from scavenge.edge.sources.http_config import HttpSourceConfig
from scavenge.environments.chat import ChatSettings, create_chat
from scavenge.environments.mathscore import math_equal
from scavenge.plugin import (
    AdmissionPolicyType,
    EndpointSourceType,
    EnvironmentType,
    FileStore,
    ImageStoreType,
    Scorer,
    hookimpl,
)
from scavenge.testing.source import SimulatedConfig, open_simulated


@asynccontextmanager
async def open_file(config: FileSourceConfig) -> AsyncIterator[FileSource]:
    """The source that reads the configured file. Nothing is held open."""
    yield FileSource(config.path)


@asynccontextmanager
async def open_folder_store(config: FolderConfig) -> AsyncIterator[FileStore]:
    """The store in the configured folder. Nothing is held open."""
    yield FileStore(FolderFiles(config.path))


@asynccontextmanager
async def open_http_store(config: HttpStoreConfig) -> AsyncIterator[FileStore]:
    """The store at the configured URL."""
    async with open_http_files(config) as files:
        yield FileStore(files)


class BuiltinPlugin:
    """scavenge's own hook implementations. ``find_scorer`` is the look-up of the registry they are added to."""

    def __init__(self, find_scorer: Callable[[str], Scorer]) -> None:
        self._find_scorer = find_scorer

    @hookimpl
    def scavenge_endpoint_sources(self) -> list[EndpointSourceType]:
        """``file``, ``http``, ``command`` and ``simulated``."""
        return [
            EndpointSourceType("file", FileSourceConfig, open_file),
            EndpointSourceType("http", HttpSourceConfig, open_http),
            EndpointSourceType("command", CommandSourceConfig, open_command),
            EndpointSourceType("simulated", SimulatedConfig, open_simulated),
        ]

    @hookimpl
    def scavenge_admission_policies(self) -> list[AdmissionPolicyType]:
        """``tide``, ``gradient2``, ``aimd``, ``pi`` and ``fixed``."""
        return [
            AdmissionPolicyType("tide", TideSettings, Tide),
            AdmissionPolicyType("gradient2", Gradient2Settings, Gradient2),
            AdmissionPolicyType("aimd", AimdSettings, Aimd),
            AdmissionPolicyType("pi", PiSettings, Pi),
            AdmissionPolicyType("fixed", FixedSettings, Fixed),
        ]

    @hookimpl
    def scavenge_environments(self) -> list[EnvironmentType]:
        """``chat``."""
        return [EnvironmentType("chat", ChatSettings, partial(create_chat, find_scorer=self._find_scorer))]

    @hookimpl
    def scavenge_scorers(self) -> list[Scorer]:
        """The scorers of ``chat``."""
        return [
            Scorer("exact_match", exact_match, needs_answer=True, in_thread=False),
            Scorer("includes", includes, needs_answer=True, in_thread=False),
            Scorer("numeric", numeric, normalize=False, needs_answer=True, in_thread=False),
            Scorer("choice", choice, normalize=False, needs_answer=True, in_thread=False),
            Scorer("regex", regex, normalize=False, needs_answer=True, in_thread=False),
            Scorer("math", math_equal, normalize=False, needs_answer=True),
            Scorer("none", unscored, normalize=False, in_thread=False),
        ]

    @hookimpl
    def scavenge_image_stores(self) -> list[ImageStoreType]:
        """``folder``, ``http`` and ``registry``."""
        return [
            ImageStoreType("folder", FolderConfig, open_folder_store, "path"),
            ImageStoreType("http", HttpStoreConfig, open_http_store, "url"),
            ImageStoreType("registry", RegistryStoreConfig, open_registry_store, "prefix"),
        ]
