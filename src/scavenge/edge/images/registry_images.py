"""What a registry has under a name, as an image of a platform. Reads, and decides what fits; changes nothing.

An image that is named by a digest is looked for under that, and under the tag that stands for it where images are
shipped to: their manifests are written anew, so they cannot have the digest that they had elsewhere. Calls raise
:class:`RegistryFault`, and :class:`BadManifest` for what is no image.
"""

from __future__ import annotations

import attrs

from scavenge.core.images.manifests import BadManifest, Blob, Config, Index, Listed, Manifest, fits, parse_config
from scavenge.core.images.reference import ImageName
from scavenge.edge.images.registry_archive import Parts
from scavenge.edge.images.registry_client import Registry
from scavenge.edge.images.registry_wire import RegistryFault
from scavenge.images import ImageRecord, Missing, Platform, Unfit


@attrs.frozen
class Found:
    """An image in a registry. It has as many layers as its configuration says."""

    manifest: Manifest
    config: Config

    def parts(self, name: str) -> Parts:
        """What its archive is made of, in which it is called *name*."""
        return Parts.of(self.manifest, self.config, name)

    def record(self, name: str) -> ImageRecord:
        """Its record as the image *name*. The archive is made when it is read, so it has no digest of its own."""
        return ImageRecord(
            image=name,
            platform=self.config.platform,
            config_digest=self.manifest.config.digest,
            diff_ids=self.config.diff_ids,
            archive=self.manifest.digest,
            size_bytes=self.parts(name).size_bytes,
            sha256="",
            created=self.config.created,
            made_by="",
        )


def tag_of(place: ImageName) -> str:
    """The tag under which an image is put: its own, or one that is made of its digest."""
    return place.tag or place.digest.replace(":", "-")


async def find_image(registry: Registry, place: ImageName, platform: Platform) -> Found | None:
    """The image at a place for a platform; ``None``: it is not there."""
    for reference in dict.fromkeys((place.reference, tag_of(place))):
        document = await _document(registry, place.path, reference)
        if isinstance(document, Index):
            chosen = document.choose(platform)
            document = None if chosen is None else await registry.document(place.path, chosen.digest)
        if document is None:
            continue
        found = await _with_config(registry, place.path, document)
        if fits(found.config.platform, platform):
            return found
    return None


async def image_of(registry: Registry, path: str, digest: str) -> Found:
    """The image whose manifest has a digest."""
    return await _with_config(registry, path, await registry.document(path, digest))


async def images_for_others(registry: Registry, place: ImageName, platform: Platform) -> list[Listed]:
    """What there is at a place for other platforms; what is no image does not count."""
    try:
        document = await _document(registry, place.path, tag_of(place))
        if document is None:
            return []
        listed = document.manifests if isinstance(document, Index) else await _alone(registry, place.path, document)
    except BadManifest:
        return []
    except RegistryFault as fault:
        if isinstance(fault.end, Unfit):
            return []
        raise
    return [one for one in listed if one.platform is None or not fits(one.platform, platform)]


async def _alone(registry: Registry, path: str, manifest: Manifest) -> tuple[Listed, ...]:
    """An image that is in no index, as if it were."""
    found = await _with_config(registry, path, manifest)
    return (Listed(Blob(manifest.digest, len(manifest.data), manifest.media_type), found.config.platform),)


async def _document(registry: Registry, path: str, reference: str) -> Manifest | Index | None:
    try:
        return await registry.document(path, reference)
    except RegistryFault as fault:
        if isinstance(fault.end, Missing):
            return None
        raise


async def _with_config(registry: Registry, path: str, document: Manifest | Index) -> Found:
    if isinstance(document, Index):
        raise BadManifest("its index leads to an index")
    config = parse_config(await registry.read_blob(path, document.config))
    if len(config.diff_ids) != len(document.layers):
        raise BadManifest(f"its config tells of {len(config.diff_ids)} layers, and it has {len(document.layers)}")
    return Found(document, config)
