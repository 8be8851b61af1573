"""What the fake engine does with each kind of call, where no script says otherwise."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import attrs

from fake_engine_wire import Call, Exchange
from fake_images import FakeImage, docker_archive, images_in
from scavenge.core.images.reference import canonical, familiar, parts

if TYPE_CHECKING:
    from fake_engine import FakeEngine


async def _ping(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    headers = {"Api-Version": engine.api_version, "Ostype": "linux"}
    if engine.podman:
        headers["Libpod-Api-Version"] = "4.3.1"
    await exchange.reply(200, b"OK", headers)


async def _info(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    architecture = engine.platform.architecture
    said = {
        "ID": str(uuid.uuid4()) if engine.podman else "7TRN:IPZB:QYBB",
        "Name": "machine",
        "DockerRootDir": str(engine.folder),
        "OSType": engine.platform.os,
        "Architecture": architecture if engine.podman else names[architecture],
        "ServerVersion": "4.3.1" if engine.podman else "20.10.24",
        "KernelVersion": engine.kernel,
    }
    await exchange.reply_json(200, said)


async def _list(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    if engine.podman and "digests" in call.query:  # which it does not know: Podman 4.3 answers with nothing
        await exchange.reply(200, b"")
        return
    rows: dict[str, dict[str, object]] = {}
    for name, image in engine.images.items():
        digests = [*image.digests, *([name] if "@" in name else [])]
        row = rows.setdefault(
            image.image_id, {"Id": image.image_id, "RepoTags": None, "RepoDigests": digests, "Size": image.size_bytes}
        )
        if "@" not in name:
            tags = row["RepoTags"] if isinstance(row["RepoTags"], list) else []
            row["RepoTags"] = [*tags, shown(engine, name)]
    dangling = [{"Id": image.image_id, "RepoTags": ["<none>:<none>"], "RepoDigests": None} for image in engine.untagged]
    await exchange.reply_json(200, [*rows.values(), *dangling])


def shown(engine: FakeEngine, name: str) -> str:
    """As Docker shows names: short ones for its own registry. Podman says everything."""
    return name if engine.podman else familiar(name)


async def _inspect(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    if (image := engine.find(call.name)) is None:
        await exchange.refuse(404, f"No such image: {call.name}")
        return
    said = {
        "Id": image.image_id,
        "RepoDigests": list(image.digests),
        "Os": image.platform.os,
        "Architecture": image.platform.architecture,
        "Size": image.size_bytes,
        "RootFS": {"Type": "layers", "Layers": list(image.diff_ids)},
    }
    await exchange.reply_json(200, {**said, "Variant": image.platform.variant} if image.platform.variant else said)


async def _tag(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    if (image := engine.find(call.name)) is None:
        await exchange.refuse(404, f"No such image: {call.name}")
        return
    engine.images[canonical(f"{call.query['repo']}:{call.query['tag']}")] = image
    await exchange.reply(201, b"")


async def _remove(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    name = canonical(call.name)
    if name not in engine.images:
        await exchange.refuse(404, f"No such image: {call.name}")
    elif name in engine.in_use:
        why = "conflict: unable to remove repository reference (must force) - container 0a1b is using its image"
        await exchange.refuse(409, why)
    else:
        del engine.images[name]
        await exchange.reply_json(200, [{"Untagged": call.name}])


async def _save(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    if (image := engine.find(call.name)) is None:
        await exchange.refuse(404, f"reference does not exist: {call.name}")
        return
    archive = docker_archive([(shown(engine, canonical(call.name)), image)])
    await exchange.start_stream("application/x-tar")
    for start in range(0, len(archive), 4096):
        await exchange.say_bytes(archive[start : start + 4096])
    await exchange.end_stream()


async def _pull(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    tag = call.query["tag"]
    name = canonical(f"{call.query['fromImage']}{'@' if tag.startswith('sha256:') else ':'}{tag}")
    if (image := engine.remote.get(name)) is None:
        why = f"manifest for {name} not found: manifest unknown: manifest unknown"
        if engine.podman:
            await exchange.start_stream()
            await exchange.say_error(why, bare=True)
            await exchange.end_stream()
        else:
            await exchange.refuse(404, why)
        return
    engine.pulling += 1
    engine.most_pulling = max(engine.most_pulling, engine.pulling)
    try:
        await _bring(engine, name, image, exchange)
    finally:
        engine.pulling -= 1


async def _bring(engine: FakeEngine, name: str, image: FakeImage, exchange: Exchange) -> None:
    await exchange.start_stream()
    if not engine.podman:
        await exchange.say({"status": f"Pulling from {parts(name).path}", "id": parts(name).reference})
    each = max(len(image.layers), 1)
    for diff_id, layer in zip(image.diff_ids, image.layers, strict=True):
        for done in (len(layer) // 2, len(layer)):
            await exchange.sleep(engine.pull_s / each / 2)
            detail = {"current": done, "total": len(layer)}
            await exchange.say({"status": "Downloading", "progressDetail": detail, "id": diff_id[7:19]})
        await exchange.say({"status": "Download complete", "progressDetail": {}, "id": diff_id[7:19]})
    await exchange.sleep(engine.unpack_s)
    digest = f"{parts(name).repository}@{image.manifest_digest}"
    known = engine.images.get(name)
    engine.images[name] = attrs.evolve(image, digests=(*dict.fromkeys((*image.digests, digest)),))
    if engine.podman:
        await exchange.say(*[{"status": "Download complete", "progressDetail": {}, "id": image.image_id[7:19]}] * 2)
    else:
        is_new = "Image is up to date" if known == engine.images[name] else "Downloaded newer image"
        await exchange.say({"status": f"Digest: {image.manifest_digest}"}, {"status": f"Status: {is_new} for {name}"})
    await exchange.end_stream()


async def _load(engine: FakeEngine, call: Call, exchange: Exchange) -> None:
    try:
        held = images_in(call.body)
    except ValueError as exc:
        if engine.podman:
            await exchange.refuse(500, f"payload does not match any of the supported image formats: {exc}")
        else:
            await exchange.start_stream()
            await exchange.say_error(str(exc), bare=False)
            await exchange.end_stream()
        return
    await exchange.start_stream()
    for names, image in held:
        await exchange.say(*_take_in(engine, names, image))
    await exchange.end_stream()


def _take_in(engine: FakeEngine, names: tuple[str, ...], image: FakeImage) -> list[dict[str, str]]:
    if engine.loads_as is not None:
        names = tuple(engine.loads_as.format(name) for name in names if engine.loads_as)
    if not names:
        engine.untagged.append(image)
        return [{"stream": f"Loaded image{'' if engine.podman else ' ID'}: {image.image_id}\n"}]
    for name in names:
        engine.images[canonical(name)] = image
    if engine.podman:
        return [{"stream": f"Loaded image: {','.join(names)}\n"}]
    return [{"stream": f"Loaded image: {shown(engine, name)}\n"} for name in names]


USUAL = {
    "ping": _ping,
    "info": _info,
    "list": _list,
    "inspect": _inspect,
    "pull": _pull,
    "load": _load,
    "tag": _tag,
    "remove": _remove,
    "save": _save,
}
"""What is done for each kind of call."""
