"""Where the API is and what it is asked with: the official client's own chain of credentials, in a thread.

That client reads kubeconfigs (contexts, certificates, tokens in files, exec plugins) and service accounts. It does not
ask the API here: a thread that blocks in a watch cannot be cancelled. What it says of its troubles is not repeated,
since it quotes the kubeconfig, secrets included.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from scavenge.plugin import SourceError
from scavenge_kubernetes.config import KubernetesConfig

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the credentials of its service account."""

LOADED_WITHIN_S = 25.0
"""How long an exec plugin may take."""

_ONE_AT_A_TIME = threading.Lock()
"""Held while the client loads: it keeps the temporary files that it writes in one table for all."""


@attrs.frozen
class Access:
    """Where the API is and what it is asked with."""

    server: str
    """Its URL."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    tls: ssl.SSLContext | bool = attrs.field(repr=False)
    """What TLS is spoken with; false for a server without."""
    server_name: str | None
    """The name that the server's certificate has to have, where that is not the one in the URL."""
    proxy: str | None = attrs.field(repr=False)
    namespace: str
    """The one that holds where none is configured."""
    origin: str
    """Where it comes from, for messages."""


@attrs.frozen
class Chain:
    """Finds an :class:`Access`: a kubeconfig that is there, else the service account of the pod."""

    config: KubernetesConfig
    environ: Mapping[str, str] = attrs.field(factory=lambda: os.environ, repr=False)
    service_account: Path = SERVICE_ACCOUNT
    _limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1), repr=False)

    async def load(self) -> Access:
        """Read the credentials as they are now, and run the exec plugin where there is one.

        Raises :class:`SourceError`. Cancelled, it leaves at most one thread behind, until the plugin has ended; the
        next call waits for it.
        """
        with trio.move_on_after(LOADED_WITHIN_S):
            return await trio.to_thread.run_sync(self._read, limiter=self._limiter, abandon_on_cancel=True)
        raise SourceError(
            f"no credentials within {LOADED_WITHIN_S:g} s: the exec plugin of the kubeconfig hangs; "
            "log in by hand, or see whether `kubectl get pods` hangs too"
        )

    def _read(self) -> Access:
        path = self._kubeconfig()
        try:
            with _ONE_AT_A_TIME, tempfile.TemporaryDirectory() as folder:
                return self._of_pod() if path is None else self._of_kubeconfig(path, folder)
        except SourceError:
            raise
        except Exception as exc:  # its kinds are the client's own
            where = "the service account of this pod" if path is None else path
            raise SourceError(f"{where}: {_told(exc)}") from None

    def _kubeconfig(self) -> str | None:
        """The path, or paths, of the kubeconfig; none where a service account takes its place."""
        if self.config.kubeconfig is not None:
            return str(self.config.kubeconfig)
        named = self.environ.get("KUBECONFIG")
        home = Path(self.environ.get("HOME", "~")).expanduser() / ".kube" / "config"
        if named or self.config.context is not None or home.exists():
            return named or str(home)
        if not self.environ.get("KUBERNETES_SERVICE_HOST"):
            raise SourceError(
                f"no credentials: {home} is not there, KUBECONFIG is not set, and this is no pod; "
                "name a kubeconfig with the key `kubeconfig`"
            )
        return None

    def _of_pod(self) -> Access:
        from kubernetes.client import Configuration
        from kubernetes.config.incluster_config import InClusterConfigLoader

        found, folder = Configuration(), self.service_account
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]  # the client's configuration has no types
            folder / "token", folder / "ca.crt", environ=self.environ
        )
        loader.load_and_set(found)  # type: ignore[no-untyped-call]  # likewise
        namespace = (folder / "namespace").read_text().strip()
        return _access(found, namespace, "the service account of this pod")

    def _of_kubeconfig(self, path: str, folder: str) -> Access:
        from kubernetes.client import Configuration
        from kubernetes.config import load_kube_config
        from kubernetes.config.kube_config import KubeConfigMerger

        if not any(Path(one).expanduser().is_file() for one in path.split(os.pathsep)):
            raise SourceError(f"{path}: no such file; correct the path of the kubeconfig")
        found = Configuration()
        merged = KubeConfigMerger(path).config  # type: ignore[no-untyped-call]  # its configuration has no types
        name = self.config.context or merged["current-context"]
        context = merged["contexts"].get_with_name(name)["context"]
        load_kube_config(  # type: ignore[no-untyped-call]  # likewise
            path, name, found, persist_config=False, temp_file_path=folder
        )
        origin = f'the context "{name}" of {path}'
        if found.host == Configuration().host:
            raise SourceError(f"the cluster of {origin} has no server; write its URL there")
        if _lacks_credentials(found) and context.safe_get("user"):
            # the client logs the trouble of an exec plugin, and goes on without what it should have given
            raise SourceError(
                f"no credentials come of {origin}: its user has none, or its exec plugin fails, of which the log tells"
                "; see whether `kubectl get pods` gets further"
            )
        return _access(found, context.safe_get("namespace") or "default", origin)


def _lacks_credentials(found: Configuration) -> bool:
    """Whether nothing says who asks, where somebody wants to know: ``kubectl proxy`` does not."""
    return found.host.startswith("https://") and not found.auth_settings() and not found.cert_file


def _access(found: Configuration, namespace: str, origin: str) -> Access:
    auth = found.auth_settings().get("BearerToken")
    headers = {} if auth is None else {"Authorization": _header(str(auth["value"]), origin)}
    return Access(
        server=found.host,
        headers=headers,
        tls=_tls(found) if found.host.startswith("https://") else False,
        server_name=found.tls_server_name,
        proxy=_proxy(found),
        namespace=namespace,
        origin=origin,
    )


def _header(value: str, origin: str) -> str:
    """The header's value, without the line break at the end of a file; no error may quote it later."""
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        raise SourceError(f"the token of {origin} has characters that no header can have; write it anew")
    return value


def _tls(found: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=found.ssl_ca_cert)
    # Python 3.13 refuses, and kubectl does not, the authorities that many clusters have made for themselves
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    return context


def _proxy(found: Configuration) -> str | None:
    from kubernetes.client.rest import should_bypass_proxies

    return None if should_bypass_proxies(found.host, found.no_proxy or "") else found.proxy


def _told(exc: Exception) -> str:
    """What is wrong, without what the client quotes of the kubeconfig."""
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.filename or 'a file that it names'}: {exc.strerror}"
    if type(exc).__name__ == "ConfigException":
        said, _, _ = str(exc).partition("{")  # behind it, entries of the file follow
        return f"{said.rstrip('/')}; see what `kubectl config view` says"
    mark = getattr(exc, "problem_mark", None)
    line = f" (line {mark.line + 1})" if mark is not None else ""
    return f"cannot be used: {type(exc).__name__}{line}; see what `kubectl config view` says"
