"""``scavenge images``: the image service by hand."""

from __future__ import annotations

from pathlib import Path

import click

from scavenge.cli.output import write_out

EXAMPLE = """\b
Examples:
  scavenge images pull eval.toml
  scavenge images list eval.toml
  scavenge images pack python:3.12 --to shipments
  scavenge images ship shipments --to folder:/mnt/lab/images
  scavenge images gc"""
PATH = click.Path(path_type=Path)
ENGINE = click.option("--engine", metavar="ADDRESS", help="The engine's socket, such as unix:///run/docker.sock.")
TO_FOLDER = click.option("--to", "folder", metavar="FOLDER", type=PATH, required=True, help="Where the tars go.")


@click.group(
    epilog=EXAMPLE, short_help="Container images: fetch, list, pack and ship them; remove what was left behind."
)
def images() -> None:
    """Have container images on this machine, or where another machine finds them."""


@images.command(
    epilog="""\b
Examples:
  scavenge images pull eval.toml
  scavenge images pull names.txt --engine unix:///run/podman/podman.sock"""
)
@click.argument("file", type=PATH)
@ENGINE
def pull(file: Path, engine: str | None) -> int:
    """Have all images delivered that FILE needs, and keep them.

    FILE is an evaluation file (its [images] table says from where), or a text file with one reference a line. Exits
    with 0 when all are there, with 1 when one is not to be had, or a row of FILE cannot say what it needs.
    """
    from scavenge.app.image_pull import pull_in_console

    return pull_in_console(file, engine)


@images.command(
    name="list",
    epilog="""\b
Examples:
  scavenge images list
  scavenge images list eval.toml --json""",
)
@click.argument("file", type=PATH, required=False)
@ENGINE
@click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")
def list_(file: Path | None, engine: str | None, as_json: bool) -> int:
    """Show which images FILE needs and whether they are there; without FILE, those that runs brought.

    Exits with 0 when all are there, with 1 when one is not, or a row of FILE cannot say what it needs.
    """
    from scavenge.app.image_list import list_images

    code, text = list_images(file, engine, as_json=as_json)
    write_out(text)
    return code


@images.command(
    epilog="""\b
Example:
  scavenge images pack python:3.12 ghcr.io/owner/tool:1 --to shipments"""
)
@click.argument("references", metavar="IMAGE...", nargs=-1, required=True)
@TO_FOLDER
@ENGINE
def pack(references: tuple[str, ...], folder: Path, engine: str | None) -> int:
    """Write each IMAGE of the engine as a tar of its own, with a record beside it, into FOLDER."""
    from scavenge.app.image_tars import pack_in_console

    return pack_in_console(references, folder, engine)


@images.command(
    epilog="""\b
Example:
  scavenge images repack batch.tar.gz --to shipments"""
)
@click.argument("tars", metavar="TAR...", nargs=-1, type=PATH, required=True)
@TO_FOLDER
def repack(tars: tuple[Path, ...], folder: Path) -> int:
    """Split each TAR, compressed or with many images in it, into one plain tar an image. Needs no engine."""
    from scavenge.app.image_tars import repack_in_console

    return repack_in_console(tars, folder)


@images.command(
    epilog="""\b
Examples:
  scavenge images ship shipments --to folder:/mnt/lab/images
  scavenge images ship shipments --to registry:registry.example:5000/evals
  scavenge images ship shipments --to http:https://files.example/images --set token_var=FILES_TOKEN"""
)
@click.argument("tars", metavar="TAR|FOLDER...", nargs=-1, type=PATH, required=True)
@click.option(
    "--to", "store", metavar="TYPE:ADDRESS", required=True, help="The store; `scavenge plugins` has the types."
)
@click.option("--set", "keys", metavar="KEY=VALUE", multiple=True, help="Another key of the store's.")
def ship(tars: tuple[Path, ...], store: str, keys: tuple[str, ...]) -> int:
    """Upload packed images to a store, read each back, and prove by digest that it is the same."""
    from scavenge.app.image_tars import ship_in_console

    return ship_in_console(tars, store, keys)


@images.command(
    epilog="""\b
Example:
  scavenge images gc"""
)
@ENGINE
def gc(engine: str | None) -> int:
    """Remove the images that runs brought and that were killed before they could remove them."""
    from scavenge.app.image_list import collect_in_console

    return collect_in_console(engine)
