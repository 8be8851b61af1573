"""The protocols that the edge, the plugins and the environments implement. Nothing here waits or decides."""

from scavenge.runtime.ports.environments import Environment
from scavenge.runtime.ports.images import ImageEngine, ImageLedger, ImageSource, ImageStore, Report, StoreFiles
from scavenge.runtime.ports.machine import ResultLog, Threads
from scavenge.runtime.ports.models import (
    AdmissionPolicy,
    EndpointSource,
    ModelClient,
    ModelDoor,
    ModelSession,
    ModelTransport,
    RelayRequest,
    ReplySink,
    SyncModelSession,
)
from scavenge.runtime.ports.workers import WorkerLauncher, WorkerProcess

__all__ = [
    "AdmissionPolicy",
    "EndpointSource",
    "Environment",
    "ImageEngine",
    "ImageLedger",
    "ImageSource",
    "ImageStore",
    "ModelClient",
    "ModelDoor",
    "ModelSession",
    "ModelTransport",
    "RelayRequest",
    "ReplySink",
    "Report",
    "ResultLog",
    "StoreFiles",
    "SyncModelSession",
    "Threads",
    "WorkerLauncher",
    "WorkerProcess",
]
