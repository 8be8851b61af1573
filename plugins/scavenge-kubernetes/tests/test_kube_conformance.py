"""The checks that every endpoint source has to pass, in a cluster whose pods come and go."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count

import trio
from kube_kit import open_source, pod, ready_pods, write_kubeconfig

from scavenge.testing import SourceFault, check_endpoint_source

TOKEN = "t0ken-0f-mine"
FAULTS = ["cut", "null", "403", "503"]


async def test_the_source_is_an_endpoint_source(kube, tmp_path):
    kube.tokens, numbers = {TOKEN}, count(3)
    path = write_kubeconfig(tmp_path, kube.url, {"token": TOKEN})

    async def change():
        await trio.lowlevel.checkpoint()
        number = next(numbers)
        kube.store.delete("pods", "ml", kube.store.names("pods")[0])
        kube.store.put("pods", pod(f"p{number}", f"10.0.0.{number}"))

    @asynccontextmanager
    async def refused():
        kube.tokens = set()
        kube.cut_watches()
        yield
        kube.tokens = {TOKEN}

    faults = [SourceFault(kind, lambda kind=kind: kube.broken(kind)) for kind in FAULTS]
    faults += [SourceFault("token refused", refused)]
    await check_endpoint_source(
        lambda: open_source(path, relist_interval=1),
        expect=lambda: ready_pods(kube),
        change=change,
        faults=faults,
        secrets=[TOKEN],
        max_steps=25,
    )
