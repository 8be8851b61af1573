"""Registries that want a password, and Docker's own files and helpers that have it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from real_client import HERE, ignore, new_path
from real_images import Pusher, needs_shell
from real_registry import PASSWORD, USER, needs_registry

from scavenge.edge.images.credentials import Credentials
from scavenge.edge.images.engine import open_engine
from scavenge.images import Delivered, Denied

pytestmark = [needs_registry, needs_shell]

HELPER = """#!/bin/sh
read server
echo '{"ServerURL": "'$server'", "Username": "%s", "Secret": "%s"}'
"""


@pytest.fixture
def locked_image(locked_registry):
    """The name of an image that takes a password."""
    name = f"{new_path()}:1"
    Pusher(locked_registry.address, password=True).push([name])
    return f"{locked_registry.address}/{name}"


async def pull_with(engine, image: str, folder: Path, config: dict[str, object]):
    """Pull with the credentials of such a ``config.json``."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    environ = {"DOCKER_CONFIG": str(folder), "HOME": str(folder)}
    async with open_engine(engine.address, environ, Credentials(environ)) as client:
        return await client.pull(image, HERE, ignore)


def in_file(address: str, password: str) -> dict[str, object]:
    """What ``docker login`` writes."""
    return {"auths": {address: {"auth": base64.b64encode(f"{USER}:{password}".encode()).decode()}}}


async def test_the_right_password_opens_what_no_password_and_a_wrong_one_do_not(
    real_engine, locked_registry, locked_image, tmp_path
):
    assert isinstance(await pull_with(real_engine, locked_image, tmp_path, {}), Denied)
    wrong = await pull_with(real_engine, locked_image, tmp_path, in_file(locked_registry.address, "hello"))
    assert isinstance(wrong, Denied)
    assert "hello" not in wrong.why
    right = in_file(locked_registry.address, PASSWORD)
    assert await pull_with(real_engine, locked_image, tmp_path, right) == Delivered()


async def test_a_helper_knows_the_password(real_engine, locked_registry, locked_image, tmp_path, monkeypatch):
    helper = tmp_path / "docker-credential-tests"
    helper.write_text(HELPER % (USER, PASSWORD), encoding="utf-8")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    config = {"credHelpers": {locked_registry.address: "tests"}}
    assert await pull_with(real_engine, locked_image, tmp_path, config) == Delivered()
