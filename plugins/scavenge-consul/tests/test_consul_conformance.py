"""The source passes the checks for sources, with a service and with a stored file."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
from consul_kit import Double, open_double, open_quick, service_config
from scavenge_consul import ConsulConfig

from scavenge.testing import SourceFault, check_endpoint_source

TOKEN = "5eb0c4-secret"
WITHIN_S = 3.0
"""Enough on a busy machine, and how long an answer that is held is waited for in a fault."""


@attrs.define
class Servers:
    """Two servers, of which one stays."""

    double: Double
    both: bool = True

    def urls(self) -> list[str]:
        """What has to be listed."""
        return ["http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1"][: 1 + self.both]

    async def move_in_the_catalogue(self) -> None:
        """Let one go, or come back."""
        self.both = not self.both
        await (self.double.serve("n2", 8000) if self.both else self.double.leave("n2"))

    async def move_in_the_store(self) -> None:
        """Write the file anew."""
        self.both = not self.both
        await self.store()

    async def store(self) -> None:
        """Write the file."""
        rows = [f'[[endpoint]]\nendpoint_id = "pool"\nmodel = "m"\nurl = "{url}"\n' for url in self.urls()]
        await self.double.store("endpoints.toml", "".join(rows))


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("CONSUL_HTTP_TOKEN", TOKEN)


async def lock(double: Double) -> None:
    """Let nobody in without the token."""
    await double.control(tokens={TOKEN: None})
    double.authorise(TOKEN)


async def test_the_instances_of_a_service():
    async with open_double() as double:
        servers = Servers(double)
        for node in ("n1", "n2"):
            await double.serve(node, 8000)
        await lock(double)
        config = service_config(double.address, token_var="CONSUL_HTTP_TOKEN")
        nobody, blind = {"X-Consul-Index": None}, {"X-Consul-Results-Filtered-By-ACLs": "true"}
        await check_endpoint_source(
            lambda: open_quick(config),
            expect=servers.urls,
            change=servers.move_in_the_catalogue,
            faults=[
                SourceFault("no leader", partial(double.told, {"leader": False}, {"leader": True})),
                SourceFault("the token sees nothing", partial(double.wrong, body="[]", headers=blind)),
                SourceFault("throttled", partial(double.wrong, status=429)),
                SourceFault("an empty list of somebody else", partial(double.wrong, body="[]", headers=nobody)),
                SourceFault("cut", partial(double.wrong, manner="cut")),
            ],
            secrets=[TOKEN],
            answers_within_s=WITHIN_S,
        )


async def test_a_stored_file():
    async with open_double() as double:
        servers = Servers(double)
        await servers.store()
        await lock(double)
        config = ConsulConfig(kv="endpoints.toml", address=double.address, token_var="CONSUL_HTTP_TOKEN")
        await check_endpoint_source(
            lambda: open_quick(config),
            expect=servers.urls,
            change=servers.move_in_the_store,
            faults=[SourceFault("the value is half written", partial(double.wrong, body="[[endpoint]]\nmodel ="))],
            secrets=[TOKEN],
            answers_within_s=WITHIN_S,
            max_steps=30,
        )
