"""Evaluations on servers of which nothing is heard any more: their packets vanish, and come back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fleet_story import STREAMS, assert_nobody_blamed, assert_redone, lose_network, open_story
from hosts import HostedServer, needs_hosts, open_network

pytestmark = needs_hosts

PROGRAM = Path(__file__).with_name("sim_host.py")
PORT = 8000
TOKENS = 40


@pytest.fixture
def fleet(tmp_path):
    """Three simulated servers on hosts of their own, and a run on them."""
    with open_network(3) as network:
        urls = [f"http://{host.address}:{PORT}/v1" for host in network.hosts]
        servers = []
        try:
            for host in network.hosts:
                command = [sys.executable, str(PROGRAM), host.address, str(PORT), str(STREAMS), "0.02"]
                servers.append(HostedServer(host, command, tmp_path / f"server-{host.number}.log"))

            def check() -> None:
                for server in servers:
                    server.check("the simulated server")

            with open_story(tmp_path, urls, "sim", TOKENS, network.client.prefix, check) as story:
                yield network, urls, story
        finally:
            for server in servers:
                server.end()


def test_the_requests_on_a_host_whose_packets_vanish_are_answered_by_others_and_it_is_used_again(fleet):
    network, (gone, *others), story = fleet
    story.wait_served(gone, *others)
    network.hosts[0].vanish()
    lost_at = story.wait("the loss to be noticed", lambda: bool(story.moved(gone)))
    story.wait_served(*others, since=lost_at)
    network.hosts[0].appear()
    story.wait_served(gone, since=lost_at)
    story.finish()
    assert_redone(story, [gone], others)


def test_a_network_that_is_lost_is_told_as_what_it_is_and_ejects_nobody(fleet):
    network, urls, story = fleet
    story.wait_served(*urls)
    lose_network(network, story)
    story.finish()
    assert_nobody_blamed(story)
