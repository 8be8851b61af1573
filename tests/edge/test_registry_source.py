"""Images by registries and mirrors: a fake engine pulls, a fake registry is asked for what the engine does not say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio
from engine_kit import Auths, ignore
from fake_registry import FakeRegistry, Refuse, open_fake_registry
from fake_registry import Silent as Unanswered

from fake_engine import Cut, Fails, FakeEngine, Refuses, Silent, open_fake_engine
from fake_images import ARM64, FakeImage
from scavenge.core.images.dockerauth import Auth
from scavenge.core.images.reference import BadReference
from scavenge.edge.images import registry_advice
from scavenge.edge.images.engine import open_engine
from scavenge.edge.images.registry_advice import Advice
from scavenge.edge.images.registry_client import open_registries
from scavenge.edge.images.registry_source import MirrorSource, OriginSource
from scavenge.images import Broken, Delivered, Denied, EngineSilent, Missing, Throttled, Unfit

IMAGE = "docker.io/library/x:1"
DIGEST = f"docker.io/library/x@sha256:{'0a' * 32}"
THROTTLED = "toomanyrequests: You have reached your pull rate limit"
UNKNOWN = "manifest unknown: manifest unknown"


@attrs.define
class Known:
    auth: Auth | None = None

    async def find(self, image: str) -> Auth | None:
        return self.auth


@attrs.define
class Claims:
    """What was noted, in order."""

    notes: list[tuple[str, str]] = attrs.field(factory=list)

    async def bring(self, image: str) -> None:
        self.notes.append(("bring", image))

    async def let_go(self, image: str) -> None:
        self.notes.append(("let go", image))


@attrs.define
class World:
    engine: FakeEngine
    registry: FakeRegistry
    origin: OriginSource
    mirror: MirrorSource
    claims: Claims

    def name(self, rest: str = "hub/library/x:1") -> str:
        """A name at the mirror."""
        return f"{self.registry.host}/{rest}"


@asynccontextmanager
async def world(auth: Auth | None = None) -> AsyncIterator[World]:
    with open_fake_registry() as registry:
        async with (
            open_fake_engine() as engine,
            open_engine(engine.address, {}, Auths()) as client,
            open_registries(Known(auth), Random(1), pause_first_s=0.0) as registries,
        ):
            advice, claims = Advice(registries), Claims()
            mirror = MirrorSource(f"{registry.host}/hub/", client, advice, claims)
            yield World(engine, registry, OriginSource(client, advice), mirror, claims)


# --- delivering


async def test_an_image_comes_by_its_own_name():
    async with world() as here:
        here.engine.remote[IMAGE] = FakeImage(said_size=7)
        assert await here.origin.deliver(IMAGE, ignore) == Delivered(7)
        assert set(here.engine.images) == {IMAGE}
        assert (here.origin.label, here.origin.lane(IMAGE)) == ("origin", "docker.io")
        assert here.origin.lane("ghcr.io/a/b:1") == "ghcr.io"


async def test_an_image_comes_by_a_mirrors_name_and_is_called_by_its_own():
    async with world() as here:
        here.engine.remote[here.name()] = FakeImage(said_size=7)
        assert await here.mirror.deliver(IMAGE, ignore) == Delivered(7)
        assert set(here.engine.images) == {IMAGE}
        assert here.claims.notes == [("bring", here.name()), ("let go", here.name())]
        assert here.mirror.label == f"mirror {here.registry.host}/hub"
        assert here.mirror.lane(IMAGE) == here.registry.host


async def test_a_mirrors_name_that_was_there_stays_and_nothing_is_pulled():
    async with world() as here:
        here.engine.images[here.name()] = FakeImage()
        assert isinstance(await here.mirror.deliver(IMAGE, ignore), Delivered)
        assert set(here.engine.images) == {IMAGE, here.name()}
        assert here.engine.calls["pull"] == 0
        assert here.claims.notes == []


@pytest.mark.parametrize("way", ["origin", "mirror"])
async def test_an_image_of_another_platform_is_unfit_and_gone_again(way: str):
    async with world() as here:
        for name in (IMAGE, here.name()):
            here.engine.remote[name] = FakeImage(platform=ARM64)
        source = here.origin if way == "origin" else here.mirror
        assert isinstance(await source.deliver(IMAGE, ignore), Unfit)
        assert here.engine.images == {}


@pytest.mark.parametrize(
    ("kind", "answer", "end"),
    [
        ("pull", Fails("unexpected EOF"), Broken),
        ("pull", Cut(), Broken),
        ("tag", Refuses(500, "no"), Broken),
        ("tag", Cut(midway=False), EngineSilent | Broken),
        ("inspect", Refuses(500, "no"), Broken),
        ("info", Refuses(500, "no"), Broken),
    ],
)
async def test_a_delivery_that_breaks_leaves_no_name(kind: str, answer: object, end: type):
    async with world() as here:
        here.engine.remote[here.name()] = FakeImage()
        here.engine.script(kind, answer)
        assert isinstance(await here.mirror.deliver(IMAGE, ignore), end)
        assert here.engine.images == {}
        assert isinstance(await here.mirror.deliver(IMAGE, ignore), Delivered)


async def test_an_engine_that_is_not_there_is_silent():
    async with world() as here:
        here.engine.down()
        assert isinstance(await here.mirror.deliver(IMAGE, ignore), EngineSilent)
        assert isinstance(await here.origin.deliver(IMAGE, ignore), EngineSilent)


async def test_a_name_that_cannot_be_taken_away_stays_noted():
    async with world() as here:
        here.engine.remote[here.name()] = FakeImage()
        here.engine.in_use.add(here.name())
        assert isinstance(await here.mirror.deliver(IMAGE, ignore), Delivered)
        assert here.claims.notes == [("bring", here.name())]


@pytest.mark.parametrize("stuck", ["pull", "tag"])
async def test_a_cancelled_delivery_takes_the_mirrors_name_away(stuck: str):
    async with world() as here:
        here.engine.remote[here.name()] = FakeImage()
        if stuck == "tag":
            here.engine.script("tag", Silent())
        else:
            here.engine.pull_s = 60.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.mirror.deliver, IMAGE, ignore)
            while not here.engine.calls[stuck]:  # noqa: ASYNC110 - a fake tells no one
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        assert here.engine.images == {}
        assert here.claims.notes == [("bring", here.name()), ("let go", here.name())]


async def test_cleaning_up_ends_when_the_engine_says_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scavenge.edge.images.registry_source.CLEANED_WITHIN_S", 0.05)
    async with world() as here:
        here.engine.remote[here.name()] = FakeImage()
        here.engine.script("remove", Silent())
        assert isinstance(await here.mirror.deliver(IMAGE, ignore), Delivered)


# --- digests


async def test_a_digest_is_kept_at_a_mirror_and_known_by_the_images_own_name():
    async with world() as here:
        image = FakeImage(digests=(DIGEST,))  # as engines do that know a digest in every repository that has a tag
        here.engine.remote[here.name(f"hub/library/x@sha256:{'0a' * 32}")] = image
        assert isinstance(await here.mirror.deliver(DIGEST, ignore), Delivered)
        assert set(here.engine.images) == {"docker.io/library/x:scavenge-0a0a0a0a0a0a0a0a"}


async def test_an_engine_that_forgets_digests_is_not_asked_for_them_again():
    async with world() as here:
        here.engine.remote[here.name(f"hub/library/x@sha256:{'0a' * 32}")] = FakeImage()
        for _ in range(2):
            end = await here.mirror.deliver(DIGEST, ignore)
            assert end == Missing("this engine has an image by its digest only from the registry in its name")
        assert here.engine.calls["pull"] == 1
        assert here.engine.images == {}


@pytest.mark.parametrize("prefix", ["http://mirror.example", "mirror", "docker.io", "mirror.example/UPPER", ""])
def test_a_prefix_that_is_none_is_refused(prefix: str):
    with pytest.raises(BadReference):
        MirrorSource(prefix, None, None, None)  # type: ignore[arg-type]


# --- what the registry adds


async def test_a_missing_tag_is_told_with_those_that_there_are():
    async with world() as here:
        for tag in ("v1", "v2", "latest-arm"):
            here.registry.add(f"hub/library/x:{tag}", FakeImage())
        here.engine.script("pull", Fails(UNKNOWN))
        end = await here.mirror.deliver("docker.io/library/x:latest", ignore)
        where = here.name("hub/library/x")
        assert end == Missing(f"{where}: no tag latest; there are: latest-arm, v1, v2")


async def test_only_some_of_many_tags_are_told():
    async with world() as here:
        for number in range(100):
            here.registry.add(f"hub/library/x:v{number:02}", FakeImage())
        here.engine.script("pull", Fails(UNKNOWN))
        end = await here.mirror.deliver("docker.io/library/x:v077", ignore)
        assert isinstance(end, Missing)
        assert "there are: v07, " in end.why
        assert end.why.endswith(" and 80 more")


@pytest.mark.parametrize(
    ("image", "script"),
    [
        (IMAGE, Refuse(500)),
        (IMAGE, Refuse(404, "NAME_UNKNOWN", "repository name not known to registry")),
        (IMAGE, None),  # the tag is there after all
        (DIGEST, None),
    ],
)
async def test_where_the_registry_adds_nothing_the_engines_word_stands(image: str, script: Refuse | None):
    async with world() as here:
        here.registry.add("hub/library/x:1", FakeImage())
        if script:
            here.registry.script("GET", "/tags/", script)
        here.engine.script("pull", Fails(UNKNOWN))
        assert await here.mirror.deliver(image, ignore) == Missing(UNKNOWN)


@pytest.mark.parametrize(
    ("answer", "after_s"),
    [
        (Refuse(429, headers={"retry-after": "90"}), 90.0),
        (Refuse(200, headers={"ratelimit-remaining": "0;w=21600", "ratelimit-reset": "1800"}), 1800.0),
        (Refuse(200, headers={"ratelimit-remaining": "0;w=21600"}), None),
        (Refuse(500), None),
    ],
)
async def test_a_registry_is_asked_how_long_it_wants_to_be_left_alone(answer: Refuse, after_s: float | None):
    async with world() as here:
        here.registry.script("HEAD", "/manifests/", answer)
        here.engine.script("pull", Fails(THROTTLED))
        end = await here.mirror.deliver(IMAGE, ignore)
        assert isinstance(end, Throttled)
        assert end.retry_after_s == after_s
        assert here.registry.count("GET", "/manifests/") == 0


async def test_a_registry_that_does_not_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry_advice, "ASKED_WITHIN_S", 0.05)
    async with world() as here:
        here.registry.script("HEAD", "/manifests/", Unanswered())
        here.engine.script("pull", Fails(THROTTLED))
        assert await here.mirror.deliver(IMAGE, ignore) == Throttled(THROTTLED, None)


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        (None, "no credentials were sent, since none were found for it: `docker login 127.0.0.1"),
        (Auth("r", "u", "secret", origin="/home/u/.docker/config.json"), "credentials of /home/u/.docker/config.json"),
    ],
)
async def test_a_refusal_says_what_was_sent_and_what_helps(auth: Auth | None, said: str):
    async with world(auth) as here:
        here.engine.script("pull", Fails("unauthorized: authentication required"))
        end = await here.mirror.deliver(IMAGE, ignore)
        assert isinstance(end, Denied)
        assert said in end.why
        assert "secret" not in end.why


async def test_docker_hubs_login_needs_no_name():
    async with world() as here:
        here.engine.script("pull", Fails("pull access denied for x, repository does not exist"))
        end = await here.origin.deliver(IMAGE, ignore)
        assert isinstance(end, Denied)
        assert "`docker login`" in end.why
