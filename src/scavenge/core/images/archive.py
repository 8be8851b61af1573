"""Reads which images an archive holds, and where: what ``docker save``, ``podman save`` and ``skopeo`` write. Pure.

Three layouts are known: Docker's with ``manifest.json`` and one folder a layer (what comes twice is a link), its later
one with ``manifest.json`` and ``blobs/sha256/``, and that of OCI (``index.json``). Where there are both documents,
``manifest.json`` counts: it has the names in full.

An archive that cannot be read at all is a :class:`BadArchive`; an image that is broken costs only itself, unless there
is no other. Nothing here reads a layer: whoever copies it checks its digest.
"""

from __future__ import annotations

from scavenge.core.images.archive_headers import walk
from scavenge.core.images.archive_image import Contents
from scavenge.core.images.archive_manifest import docker_images
from scavenge.core.images.archive_oci import oci_images
from scavenge.core.images.archive_values import Archive, BadArchive, Member, ReadAt

MOST_DOCUMENT_BYTES = 16 * 2**20
"""The longest manifest or configuration that is read."""
MOST_DOCUMENTS_BYTES = 64 * 2**20
"""How much of them is held while an archive is read."""

_DOCKER, _OCI = "manifest.json", "index.json"
_HEAD_BYTES = 8
"""Enough to tell a document from a layer, and how a layer is compressed."""


def read_archive(read: ReadAt) -> Archive:
    """The images in the archive whose bytes *read* gives. Raises :class:`BadArchive`, and whatever *read* raises."""
    contents = _contents(read)
    found = docker_images(contents) if _has(contents, _DOCKER) else oci_images(contents)
    if not found.entries:
        raise BadArchive("; ".join(found.troubles[:3]) or "it holds no image")
    return found


def _has(contents: Contents, name: str) -> bool:
    """Whether it is a Docker archive; one without either document is no archive of images."""
    if name in contents.documents:
        return True
    if _OCI in contents.documents:
        return False
    for document in (_DOCKER, _OCI):
        if (member := contents.members.get(document)) is not None:
            long = member.size > MOST_DOCUMENT_BYTES
            raise BadArchive(f"its {document} " + (f"has {member.size} bytes" if long else "is no JSON"))
    raise BadArchive("it has no manifest.json and no index.json, so it is no archive of images")


def _contents(read: ReadAt) -> Contents:
    members: dict[str, Member] = {}
    documents: dict[str, bytes] = {}
    heads: dict[str, bytes] = {}
    held = 0
    for member in walk(read):
        members[member.name] = member
        has_bytes = member.link is None and member.size > 0  # reading none would still move a compressed file on
        head = read(member.offset, min(member.size, _HEAD_BYTES)) if has_bytes else b""
        heads[member.name] = head
        if _is_document(member, head):
            held += member.size
            if held > MOST_DOCUMENTS_BYTES:
                raise BadArchive(f"it has more than {MOST_DOCUMENTS_BYTES} bytes of documents")
            documents[member.name] = read(member.offset, member.size)
    return Contents(members, documents, heads)


def _is_document(member: Member, head: bytes) -> bool:
    """Whether to keep it. The records ``LAYER/json`` of Docker's old layout say nothing that is needed."""
    looks = head.lstrip()[:1] in (b"{", b"[")
    return looks and member.size <= MOST_DOCUMENT_BYTES and not member.name.endswith("/json")
