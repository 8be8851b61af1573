"""Evaluations on three real llama.cpp servers that die, freeze and vanish, and come back.

Each server has a host of its own, so that its packets can vanish. Nothing that happens here uses up a sample's retries:
there are none. The loss of the whole network looks the same whatever the server: see test_black_holes.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
from fleet_story import Story, assert_redone, open_story
from hosts import HostedServer, Network, needs_hosts, open_network
from llama_server import MODEL, NAME, needs_llama_server, server_command

pytestmark = [needs_llama_server, needs_hosts]

PORT = 8000
TOKENS = 12


@attrs.define(eq=False)
class Fleet:
    """Three hosts with a server each. One that is made to end can be started again at its address."""

    network: Network
    model: Path
    folder: Path
    servers: list[HostedServer] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.servers = [self._started(index) for index in range(len(self.network.hosts))]

    @property
    def urls(self) -> list[str]:
        return [f"http://{host.address}:{PORT}/v1" for host in self.network.hosts]

    def _started(self, index: int) -> HostedServer:
        host = self.network.hosts[index]
        command = server_command(self.model, host.address, PORT)
        return HostedServer(host, command, self.folder / f"llama-{index}.log")

    def restart(self, index: int) -> None:
        """Start a server again, after the one before is gone."""
        self.servers[index].end()
        self.servers[index] = self._started(index)

    def check(self) -> None:
        """See that all run, but for those that a test has told to end."""
        for server in self.servers:
            server.check(NAME)

    def close(self) -> None:
        """Make sure that all are gone."""
        for server in self.servers:
            server.end()


@pytest.fixture
def fleet(model: Path, tmp_path: Path) -> Iterator[Fleet]:
    with open_network(3) as network, ExitStack() as stack:
        fleet = Fleet(network, model, tmp_path)
        stack.callback(fleet.close)
        yield fleet


@pytest.fixture
def story(fleet: Fleet, tmp_path: Path) -> Iterator[Story]:
    """A run in which every server has answered some requests and is at work on others."""
    with open_story(tmp_path, fleet.urls, MODEL, TOKENS, fleet.network.client.prefix, fleet.check) as story:
        story.wait_served(*fleet.urls)
        yield story


def test_servers_that_are_killed_and_told_to_go_are_used_again_once_they_are_back(fleet, story):
    killed, told_to_go, stays = fleet.urls
    fleet.servers[0].send_signal(signal.SIGKILL)
    fleet.servers[1].send_signal(signal.SIGTERM)
    lost_at = story.wait("both losses", lambda: all(story.moved(url) for url in (killed, told_to_go)))
    story.wait_served(stays, since=lost_at, times=1)
    fleet.restart(0)
    fleet.restart(1)
    story.wait_served(killed, told_to_go, since=lost_at)
    story.finish()
    assert_redone(story, [killed, told_to_go], [stays])


def test_a_server_that_freezes_and_a_host_whose_packets_vanish_are_used_again_after_it(fleet, story):
    frozen, gone, stays = fleet.urls
    fleet.servers[0].send_signal(signal.SIGSTOP)
    fleet.network.hosts[1].vanish()
    lost_at = story.wait("both losses", lambda: all(story.moved(url) for url in (frozen, gone)))
    story.wait_served(stays, since=lost_at, times=1)
    fleet.network.hosts[1].appear()
    fleet.servers[0].send_signal(signal.SIGCONT)
    story.wait_served(frozen, gone, since=lost_at)
    story.finish()
    assert_redone(story, [frozen, gone], [stays])
