"""The sources hold to what scavenge asks of every source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio
from gpucloud_double import TOKEN, Double, Fault, Machine, body, cut, status
from gpucloud_kit import CASES, Case, each_cloud

from scavenge.testing import SourceFault, check_endpoint_source

FAULTS = {
    "key refused": status(401),
    "throttled": status(429),
    "down": status(503),
    "an empty page": body({"instances": [], "total_instances": 3, "data": [], "total_count": 3}),
    "cut": cut,
}


@each_cloud
async def test_a_source_of_each_cloud_is_one(double: Double, case: Case):
    double.machines = [Machine(number, 40000 + number) for number in (1, 2, 3)]

    async def change() -> None:
        one = double.machines[0]
        one.state = "running" if one.state == "stopped" else "stopped"
        await trio.lowlevel.checkpoint()

    def failing(fault: Fault) -> Callable[[], AbstractAsyncContextManager[object]]:
        @asynccontextmanager
        async def apply() -> AsyncIterator[None]:
            with double.failing(fault):
                yield

        return apply

    faults = FAULTS if case is CASES["vast"] else ["key refused", "an empty page"]  # they have one client
    await check_endpoint_source(
        lambda: case.source(double),
        expect=lambda: {f"http://127.0.0.1:{one.port}/v1" for one in double.machines if one.up},
        change=change,
        faults=[SourceFault(name, failing(FAULTS[name])) for name in faults],
        secrets=[TOKEN],
    )
