"""The engine client where none answers, one answers late, or one that it does not know; and many calls at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from engine_kit import Auths, X, Y, calls_all, engine_and_client, fails, ignore

from fake_engine import Cut, FakeEngine, Raw, Refuses, Silent, Slow, open_fake_engine
from fake_images import AMD64, ARM64, FakeImage
from scavenge.edge.images.engine import open_engine
from scavenge.images import (
    Delivered,
    EngineSilent,
    Removed,
)
from scavenge.testing.sweep import cancel_at_every_step


async def test_calls_that_look_for_the_engine_at_once_agree_on_it(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.script("ping", Slow(5))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.inspect, X)
            await trio.sleep(1)
            await client.info()
        await client.info()
    assert (engine.calls["ping"], engine.calls["info"]) == (2, 1)


async def test_an_engine_that_is_not_there_is_silent_and_found_when_it_starts():
    async with engine_and_client() as (engine, client):
        engine.down()
        errors = await calls_all(client)
        engine.up()
        assert (await client.info()).product == "docker"
    assert all(error.silent and "there is no such socket" in str(error) for error in errors)


async def test_an_engine_that_has_died_is_silent():
    async with engine_and_client() as (engine, client):
        await client.info()
        engine.down(leave_socket=True)
        errors = await calls_all(client)
    assert all(error.silent and "it takes no connection" in str(error) for error in errors)


async def test_a_socket_that_nobody_may_open_has_its_own_remedy(monkeypatch):
    async with engine_and_client() as (_, client):

        async def refuse(path: object) -> None:
            await trio.lowlevel.checkpoint()
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(trio, "open_unix_socket", refuse)
        error = await fails(client.info)
    assert error.silent
    assert "join the group" in str(error)


async def test_an_engine_that_has_thawed_is_asked_anew_what_it_is(autojump_clock):
    async with engine_and_client() as (engine, client):
        await client.info()
        engine.script("list", Silent())
        await fails(client.list_images)
        engine.platform = ARM64
        assert (await client.info()).platform == ARM64


@pytest.mark.parametrize("kind", ["ping", "info", "inspect", "tag"])
async def test_an_engine_that_freezes_is_silent_after_ten_seconds(autojump_clock, kind):
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage()
        engine.always(kind, Silent())
        calls = {"inspect": (client.inspect, X), "tag": (client.tag, X, Y)}
        error = await fails(*calls.get(kind, (client.info,)))
        assert trio.current_time() == pytest.approx(10)
        await trio.testing.wait_all_tasks_blocked()
        assert engine.connections == 0
    assert error.silent
    assert "does not answer within 10 s" in str(error)


async def test_a_pull_from_a_frozen_engine_ends_by_silence(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.always("ping", Silent())
        end = await client.pull(X, AMD64, ignore)
    assert isinstance(end, EngineSilent)
    assert trio.current_time() == pytest.approx(10)


async def test_listing_and_removing_may_take_a_minute(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage()
        engine.script("list", Slow(50), Slow(70))
        engine.script("remove", Slow(50), Slow(70))
        assert len(await client.list_images()) == 1
        assert await client.remove(X) == Removed()
        errors = [await fails(client.list_images), await fails(client.remove, X)]
    assert all(error.silent and "within 60 s" in str(error) for error in errors)


@pytest.mark.parametrize("answer", [Cut(midway=False), Cut(midway=True)])
async def test_an_answer_that_breaks_off_is_silence(answer):
    async with engine_and_client() as (engine, client):
        for kind in ("info", "list", "inspect", "tag", "remove"):
            engine.script(kind, answer)
        errors = await calls_all(client)
        assert (await client.info()).product == "docker"
    assert all(error.silent and "broke off its answer" in str(error) for error in errors)


@pytest.mark.parametrize(
    ("offered", "spoken"), [("1.41", "1.41"), ("1.48", "1.48"), ("1.60", "1.48"), ("2.0", "1.48"), ("1.100", "1.48")]
)
async def test_the_newest_version_that_both_know_is_spoken(offered, spoken):
    async with engine_and_client(api_version=offered) as (engine, client):
        await client.list_images()
    assert engine.seen[-1].version == spoken


@pytest.mark.parametrize("offered", ["1.40", "1.9", "", "new", "1.41.2"])
async def test_an_engine_that_is_too_old_or_none_is_told_as_such(offered):
    async with engine_and_client(api_version=offered) as (_, client):
        errors = await calls_all(client)
    assert not any(error.silent for error in errors)
    assert all("speaks API" in str(error) or "is no container engine" in str(error) for error in errors)


async def test_an_engine_that_says_that_it_has_stopped_is_silent_and_another_status_is_not():
    async with engine_and_client() as (engine, client):
        engine.script("ping", Refuses(503, "Docker Desktop is paused"), Refuses(403, "not for you"))
        paused, forbidden = await fails(client.info), await fails(client.info)
        assert (await client.info()).product == "docker"
    assert (paused.silent, forbidden.silent) == (True, False)
    assert "is paused" in str(paused)
    assert "not for you" in str(forbidden)


async def test_an_engine_that_starts_anew_as_an_older_one_is_found_out():
    async with engine_and_client(api_version="1.44") as (engine, client):
        await client.list_images()
        engine.api_version = "1.41"
        error = await fails(client.list_images)
        assert await client.list_images() == []
    assert not error.silent
    assert "client version 1.44 is too new" in str(error)


async def test_what_speaks_no_http_is_told(tmp_path):
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def greet(stream: trio.SocketStream) -> None:
            await stream.send_all(b"SSH-2.0-OpenSSH_9.2\r\n")

        nursery.start_soon(trio.serve_listeners, greet, [listener])
        address = f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with open_engine(address, {}, Auths()) as client:
            error = await fails(client.info)
        nursery.cancel_scope.cancel()
    assert address in str(error)


async def test_an_engine_may_listen_on_a_port():
    async with open_fake_engine() as engine:
        address = await engine.open_tcp()
        engine.remote[X] = FakeImage()
        async with open_engine(None, {"DOCKER_HOST": address}, Auths()) as client:
            assert (await client.info()).product == "docker"
            assert await client.pull(X, AMD64, ignore) == Delivered()
            assert client.disk() is None
        assert engine.seen[-1].headers["host"] == address.removeprefix("tcp://")


async def test_two_hundred_calls_at_once_are_carried_out_a_few_at_a_time(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage()
        engine.always("inspect", Slow(1))
        found = []

        async def look() -> None:
            found.append(await client.inspect(X))

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(look)
        assert engine.most_connections == 64
    assert len(found) == 200
    assert len(set(found)) == 1


async def test_calls_that_nobody_awaits_any_more_make_room_for_others(autojump_clock):
    async with engine_and_client() as (engine, client):
        await client.info()
        engine.always("inspect", Silent())
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                for _ in range(200):
                    nursery.start_soon(client.inspect, X)
        assert await client.list_images() == []
        await trio.testing.wait_all_tasks_blocked()
        assert engine.connections == 0


async def test_each_error_names_the_engine_and_a_remedy_once(autojump_clock):
    async with engine_and_client() as (engine, client):
        errors = [await fails(client.tag, X, Y)]
        engine.script("list", Cut(), Raw(b"{"))
        engine.script("info", Silent(), Refuses(500, "broken"))
        errors += [await fails(call) for call in (client.list_images, client.info) for _ in range(2)]
        engine.down()
        errors += await calls_all(client)
    for error in errors:
        assert str(error).count(engine.address) == 1
        assert str(error).count("; ") == 1
        assert "see " in str(error)
        assert "\n" not in str(error)


def test_a_call_may_be_cancelled_at_every_step(tmp_path: Path):
    async def use() -> None:
        engine = FakeEngine(tmp_path, images={X: FakeImage()})
        engine.up()
        async with open_engine(engine.address, {}, Auths()) as client:
            try:
                await client.info()
                assert await client.inspect(X)
                assert await client.list_images()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                    assert engine.connections == 0
                    assert (await client.info()).product == "docker"

    assert cancel_at_every_step(use, lambda: None) > 50


def test_a_path_that_is_too_long_for_a_socket_is_an_error_like_others(tmp_path: Path):

    async def use() -> None:
        async with open_engine(f"{tmp_path}/{'x' * 200}.sock", {}, Auths()) as client:
            error = await fails(client.info)
            assert error.silent
            assert "cannot be reached" in str(error)

    trio.run(use)
