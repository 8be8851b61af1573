"""Objects of the Kubernetes API, configurations and sources for the tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from kube_double import KubeDouble
from kube_store import Selector
from scavenge_kubernetes.access import Chain
from scavenge_kubernetes.config import KubernetesConfig
from scavenge_kubernetes.source import KubernetesSource

from scavenge.plugin import Listing

Item = dict[str, Any]


def pod(name: str, ip: str | None = "10.0.0.7", *, ready: bool = True, namespace: str = "ml", **meta: Any) -> Item:
    """A pod with one container that has one port, as the API tells of it."""
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status: Item = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}, condition]}
    if ip is not None:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": {"app": "vllm"}} | meta,
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "vllm", "ports": [{"name": "http", "containerPort": 8000}]}],
        },
        "status": status,
    }


def conditions(**states: bool) -> Item:
    """The part of a pod's status that says these things of it."""
    return {"conditions": [{"type": kind, "status": str(state)} for kind, state in states.items()]}


def endpoint(address: str, name: str = "", **states: bool | None) -> Item:
    """An endpoint of an EndpointSlice; ``states`` are its conditions."""
    target = {"targetRef": {"kind": "Pod", "name": name, "uid": f"uid-{name}"}} if name else {}
    return {"addresses": [address], "conditions": {"ready": True, **states}, "nodeName": "node-1", **target}


def endpoint_slice(name: str, *endpoints: Item, family: str = "IPv4", ports: object = None) -> Item:
    """An EndpointSlice of the Service ``vllm``."""
    return {
        "metadata": {"name": name, "namespace": "ml", "labels": {"kubernetes.io/service-name": "vllm"}},
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}] if ports is None else ports,
    }


def config(**keys: Any) -> KubernetesConfig:
    """A configuration that needs nothing else."""
    plain = {"endpoint_id": "pool", "model": "sim", "url": "http://{address}:{port}/v1", "selector": "app=vllm"}
    return KubernetesConfig(**{**plain, **keys})


def kubeconfig_text(server: str, user: Mapping[str, object] | None = None, **cluster: object) -> str:
    """A kubeconfig with one context; JSON is YAML."""
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "current-context": "test",
    }
    return json.dumps(whole)


def write_kubeconfig(folder: Path, server: str, user: Mapping[str, object] | None = None, **cluster: object) -> Path:
    """A kubeconfig in a file."""
    path = folder / "kubeconfig"
    path.write_text(kubeconfig_text(server, user, **cluster))
    return path


def urls(listing: Listing, *, draining: bool | None = None) -> list[object]:
    """The URLs of a listing, or of its rows that drain or do not."""
    return [one.url for one in listing.endpoints if draining in (None, bool(one.draining))]


def ready_pods(double: KubeDouble) -> Collection[str]:
    """The URLs of the pods that are to be listed."""
    page = double.store.page("pods", "ml", Selector.of("app=vllm"), 0, "")
    return [f"http://{item['status']['podIP']}:8000/v1" for item in page.items]


@asynccontextmanager
async def open_source(path: Path, **keys: Any) -> AsyncIterator[KubernetesSource]:
    """A source with a kubeconfig, an empty environment, and no luck in its pauses."""
    found = config(kubeconfig=path, **keys)
    yield KubernetesSource(found, Chain(found, environ={}), Random(1))
