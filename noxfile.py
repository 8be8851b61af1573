"""What to run before a change is handed in: ``nox`` runs all but the long ones, ``nox -l`` lists them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "plugins", "docs"]

ROOT = Path(__file__).parent
PINS = ("-c", str(ROOT / "requirements" / "lock.txt"))
NEWER_VERIFIERS = ROOT / "requirements" / "lock-verifiers.txt"
HARNESSES = ROOT / "requirements" / "lock-harnesses.txt"
LOCKED_REQUIREMENTS = (".[test,images,parquet,math,report]", "-r", "requirements/real.txt")
PACKAGES = sorted(path.parent.name for path in (ROOT / "plugins").glob("*/pyproject.toml"))
LOCK_VERIFIERS_HEADER = """\
# What plugins/scavenge-verifiers is tested with a second time: the verifiers that has the newer API alone, and needs
# other versions than the last one with the classic API, which lock.txt has. Written by `nox -s lock_verifiers`.
"""
LOCK_HARNESSES_HEADER = """\
# What requirements/harnesses.txt is installed with, in an environment of its own. Written by `nox -s lock_harnesses`.
"""
LOCK_HEADER = """\
# What the project is tested with: constraints for pip (`pip install -c requirements/lock.txt ...`).
# Written by `nox -s lock` from a fresh environment with every extra and group.
"""


def install_group(session: nox.Session, group: str) -> None:
    """Install a dependency group; the pip in the session's environment may be too old to know groups."""
    session.install(*PINS, *nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), group))


def install_wheel(session: nox.Session, extras: str = "", pins: tuple[str, str] = PINS) -> None:
    """Build the package as users get it, and install that."""
    with tempfile.TemporaryDirectory() as folder:
        session.install(*PINS, "build")
        session.run("python", "-m", "build", "--wheel", "--outdir", folder, str(ROOT), silent=True)
        (wheel,) = Path(folder).glob("*.whl")
        session.install(*pins, f"{wheel}{extras}")


def measure(session: nox.Session, *arguments: str) -> None:
    """Report what coverage measured."""
    session.run("coverage", "report", *arguments)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, and the rules about Trio."""
    install_group(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("flake8", "--select", "ASYNC", "--enable", "ASYNC", "src", "tests", "benchmarks", "plugins")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict."""
    install_group(session, "types")
    session.install(*PINS, "-e", ".")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The tests, against the built wheel."""
    install_wheel(session, "[test]")
    session.run("pytest", *session.posargs)


@nox.session
def machines(session: nox.Session) -> None:
    """The state machines and properties, long: minutes instead of seconds."""
    install_wheel(session, "[test]")
    posargs = session.posargs or ["tests/core", "tests/runtime", "tests/testing"]
    session.run("pytest", *posargs, env={"SCAVENGE_HYPOTHESIS_PROFILE": "machines"})


@nox.session
def churn(session: nox.Session) -> None:
    """Whole simulated days of churn with a thousand endpoints: minutes."""
    install_wheel(session, "[test]")
    session.run("python", "benchmarks/churn.py", *session.posargs)


@nox.session
@nox.parametrize("package", PACKAGES)
def plugins(session: nox.Session, package: str) -> None:
    """Each package in plugins/, installed by itself beside the built wheel: its types, and its own tests."""
    check_package(session, package, "test,classic", PINS)


@nox.session
def verifiers(session: nox.Session) -> None:
    """The package for verifiers a second time, with the verifiers that has the newer API alone."""
    check_package(session, "scavenge-verifiers", "test", ("-c", str(NEWER_VERIFIERS)))


def check_package(session: nox.Session, package: str, extras: str, pins: tuple[str, str]) -> None:
    """The types of a package in plugins/, and its own tests."""
    install_wheel(session, pins=pins)
    session.install(*pins, f"{ROOT / 'plugins' / package}[{extras}]", "mypy")
    session.chdir(ROOT / "plugins" / package)
    session.run("mypy", "--config-file", str(ROOT / "pyproject.toml"), "src")
    session.run("pytest", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages, with warnings as errors, and run the examples in them."""
    install_group(session, "docs")
    session.install(*PINS, "-e", ".[test]")
    session.run("sphinx-build", "-q", "-W", "--keep-going", "-b", "html", "docs", "site")
    session.run("pytest", "tests/docs")


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage: 100 % of core, 98 % of the package."""
    session.install(*PINS, "-e", ".[test]")
    session.run("pytest", "--cov", "--cov-report=", *session.posargs)
    measure(session, "--fail-under=98")
    measure(session, "--include=src/scavenge/core/*", "--precision=2", "--fail-under=100")


@nox.session
def changelog(session: nox.Session) -> None:
    """Show what the next version's entry would say."""
    install_group(session, "changelog")
    session.run("towncrier", "build", "--draft", "--version", "next")


@nox.session
def lock(session: nox.Session) -> None:
    """Write requirements/lock.txt anew, with the newest versions that the limits in pyproject.toml allow."""
    groups = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "dev")
    packages = (f"./plugins/{package}[test,classic]" for package in PACKAGES)
    session.install(*LOCKED_REQUIREMENTS, *packages, *groups)
    write_lock(session, ROOT / "requirements" / "lock.txt", LOCK_HEADER)


@nox.session
def lock_verifiers(session: nox.Session) -> None:
    """Write requirements/lock-verifiers.txt anew, in the same way."""
    session.install(".[test]", "./plugins/scavenge-verifiers[test]", "verifiers>=0.4", "mypy")
    write_lock(session, NEWER_VERIFIERS, LOCK_VERIFIERS_HEADER)


@nox.session
def lock_harnesses(session: nox.Session) -> None:
    """Write requirements/lock-harnesses.txt anew, in the same way."""
    session.install("-r", "requirements/harnesses.txt")
    write_lock(session, HARNESSES, LOCK_HARNESSES_HEADER)


def write_lock(session: nox.Session, path: Path, header: str) -> None:
    """Write what is installed, but our own packages, as pins."""
    frozen = session.run("python", "-m", "pip", "freeze", "--exclude", "scavenge", silent=True)
    lines = [line for line in str(frozen).splitlines() if "==" in line]
    path.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
