from __future__ import annotations

import attrs

from scavenge.core.stalled_text import stalled_line
from scavenge.status import (
    DeliveryStatus,
    EndpointStatus,
    ImagesStatus,
    LeaseStatus,
    Picture,
    PoolPicture,
    PoolStatus,
    SourceStatus,
    WaitingStatus,
    WorkersStatus,
)
from scavenge.types import EndpointId, Url

GLM, A, B = EndpointId("glm"), Url("http://a/v1"), Url("http://b/v1")


def endpoint(url: Url, state: str) -> EndpointStatus:
    return EndpointStatus(url, state, "", 0, 8)


EMPTY = PoolPicture(PoolStatus(GLM, (), 0), (), 0, (), 0, 0, 0.0, "")
FULL = PoolPicture(
    PoolStatus(GLM, (endpoint(A, "live"), endpoint(B, "ejected"), endpoint(Url("http://c/v1"), "live")), 12),
    leases=(LeaseStatus(B, 1, 250.0), LeaseStatus(A, 1, 20.0, revoked=True)),
    leases_in_all=3,
    waiting=(WaitingStatus(1, 1.0), WaitingStatus(1, 298.0, (A,))),
    places=0,
    places_waiting=0,
    stalled_s=0.0,
    why="",
)


def picture(*pools: PoolPicture, **changes: object) -> Picture:
    return attrs.evolve(Picture(pools, (), None, (), 0), **changes)


def test_the_line_has_who_waits_who_holds_and_how_the_endpoints_are():
    assert stalled_line(300.0, picture(FULL)) == (
        "nothing has come back for 5:00: 12 wait for slots (oldest 4:58), 3 leases (oldest 4:10, http://b/v1), "
        "endpoints: 2 live, 1 ejected"
    )


def test_a_run_with_nothing_in_it_is_told_as_that():
    line = "nothing has come back for 10:00: 0 wait for slots, 0 leases, endpoints: none"
    assert stalled_line(600.0, picture(EMPTY)) == line
    assert stalled_line(600.0, picture()) == line


def test_one_of_each_is_told_in_the_singular():
    one = attrs.evolve(
        EMPTY,
        status=PoolStatus(GLM, (endpoint(A, "live"),), 1),
        leases=(LeaseStatus(A, 1, 5.0),),
        leases_in_all=1,
        places=1,
    )
    line = "1 waits for slots, 1 lease (oldest 0:05, http://a/v1), 1 session under way, endpoints: 1 live"
    assert stalled_line(300.0, picture(one)).endswith(f": {line}")


def test_the_numbers_are_those_of_all_pools_and_the_oldest_is_the_oldest_of_all():
    other = attrs.evolve(FULL, leases=(LeaseStatus(A, 1, 3600.0),), places=4)
    line = stalled_line(300.0, picture(FULL, other))
    assert "24 wait for slots (oldest 4:58), 6 leases (oldest 1:00:00, http://a/v1), 4 sessions under way" in line
    assert "endpoints: 4 live, 2 ejected" in line


def test_a_wait_that_is_meant_is_told_as_such():
    waiting = attrs.evolve(EMPTY, stalled_s=300.0, why="no endpoint\nis listed")
    line = stalled_line(300.0, picture(waiting))
    assert line.endswith(", glm has been waiting for an endpoint for 5:00: no endpoint is listed")


def test_a_lost_network_and_sources_in_trouble_are_told():
    sources = (
        SourceStatus("good.toml", 3, 1.0),
        SourceStatus("bad.toml", 0, None, "bad.toml: no such file"),
        *(SourceStatus(f"s{number}", 0, None, "gone") for number in range(3)),
    )
    line = stalled_line(300.0, picture(EMPTY, sources=sources, network_down_s=40.0))
    assert line.endswith(
        "endpoints: none, this machine's network has been lost for 0:40, "
        "source bad.toml: no such file, source s0: gone, source s1: gone and 1 more"
    )


def test_the_workers_of_each_evaluation_are_told_before_what_is_wrong_elsewhere():
    math = WorkersStatus("math", "empty", 0, 0, 1, 0, 12, "worker 3 died loading: exit code 1")
    code = WorkersStatus("code", "ready", 2, 0, 2, 30, 0)
    line = stalled_line(300.0, picture(workers=(math, code), network_down_s=5.0))
    assert line.partition("endpoints: none, ")[2] == (
        "workers: math: no worker, 12 rollouts wait for one: worker 3 died loading: exit code 1; "
        "code: 2 of 2 workers ready, 30 rollouts in them, this machine's network has been lost for 0:05"
    )
    over = attrs.evolve(code, state="closed", wanted=0)
    assert "workers" not in stalled_line(300.0, picture(workers=(over,)))
    many = tuple(attrs.evolve(code, eval=f"e{number}") for number in range(5))
    line = stalled_line(300.0, picture(workers=many))
    assert line.endswith("; and 2 more evals")
    assert ("e2: " in line, "e3: " in line) == (True, False)


def test_the_images_that_are_needed_are_told_with_those_who_wait_for_them():
    coming = DeliveryStatus("docker.io/library/python:3.12", "docker.io", 1, 4, 250.0)
    images = ImagesStatus("delivering", 50, 12, 0, 8, (coming,))
    line = stalled_line(300.0, picture(images=images, network_down_s=5.0))
    assert line.partition("endpoints: none, ")[2] == (
        "images: 12 of 50 there, 8 rollouts wait for images: python:3.12 from docker.io, 25 % of 4 B, "
        "this machine's network has been lost for 0:05"
    )
    assert "images" not in stalled_line(300.0, picture(images=attrs.evolve(images, wanted=0)))
