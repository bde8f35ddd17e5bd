"""etcd and kube-apiserver, started and stopped."""

import contextlib
import fcntl
import json
import os
import ssl
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from hack.controlplane import namespaces
from hack.controlplane.binaries import Binaries, find_binaries
from hack.controlplane.cluster import Cluster, ClusterError
from hack.controlplane.server import Server
from hack.ports import free_ports
from hack.progress import say

NAME = "kubernetes"
_START_SECONDS = 120.0
_ISSUER = "https://kubernetes.default.svc.cluster.local"

# Record the requests of service accounts, without bodies; other users' requests would fill the disk for nothing.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


class ControlPlane(Cluster):
    """A control plane with its state in a folder; started there again, it continues with the same objects.

    Raises:
        ClusterError: it does not come up, or another one runs in the folder.
        BinariesError: the programs that the environment names can't be used.
    """

    def __init__(self, folder: Path, *, binaries: Binaries | None = None) -> None:
        self._binaries = binaries or find_binaries()
        self._folder = folder.absolute()
        etcd_port, self._peer_port, self._port = free_ports(3)
        self._etcd_url = f"http://127.0.0.1:{etcd_port}"
        self._etcd: Server | None = None
        self._apiserver: Server | None = None
        self._lock: int | None = None
        super().__init__(self._folder / "admin.kubeconfig", f"https://127.0.0.1:{self._port}", self._binaries.kubectl)
        # kubectl caches by address what kinds there are; another control plane may have had this one.
        self._environment["KUBECACHEDIR"] = str(self._folder / "kubectl")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start both servers and wait until they answer."""
        # Imported here: the rest must work before any package is installed, because it builds Kubernetes.
        from hack.controlplane.credentials import ADMIN_GROUP, Authority, new_key, write_kubeconfig

        self._log_folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self._folder / "lock")
        self._authority = Authority(self._folder / "pki")
        self._serving = self._authority.issue_server("kube-apiserver")
        self._probe = self._authority.issue_client("tenantzone-probe", [ADMIN_GROUP])
        if not self._token_key.exists():
            new_key(self._token_key)
        write_kubeconfig(self.kubeconfig, self.server, self._authority, "admin", [ADMIN_GROUP])
        self._audit_policy.write_text(json.dumps(_AUDIT_POLICY))
        self._etcd = self._serve("etcd", self._binaries.etcd, self._etcd_flags())
        self.start_apiserver()

    def stop(self) -> None:
        """End both servers; the objects stay in the folder."""
        self.stop_apiserver()
        if self._etcd is not None:
            self._etcd.stop()
            self._etcd = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def start_apiserver(self) -> None:
        """Start kube-apiserver on the port that it has had, and wait until it answers."""
        began = time.monotonic()
        self._apiserver = self._serve("kube-apiserver", self._binaries.kube_apiserver, self._apiserver_flags())
        self._await_ready()
        say(NAME, f"kube-apiserver answers at {self.server} after {time.monotonic() - began:.1f} s")

    def stop_apiserver(self) -> None:
        """Stop kube-apiserver and wait for its exit, so that its port is free again."""
        if self._apiserver is not None:
            self._apiserver.stop()
            self._apiserver = None

    def restart_apiserver(self) -> None:
        """Restart the API server, as an upgrade or a crash looks to its clients."""
        self.stop_apiserver()
        self.start_apiserver()

    def user_kubeconfig(self, user: str, groups: Sequence[str] | None = None) -> Path:
        """Returns a kubeconfig for a user, with the permissions that RBAC grants.

        Args:
            user: for instance ``system:serviceaccount:NAMESPACE:NAME``.
            groups: by default none, or those that a service account has.
        """
        from hack.controlplane.credentials import file_name, write_kubeconfig

        path = self._folder / f"{file_name(user)}.kubeconfig"
        write_kubeconfig(path, self.server, self._authority, user, _groups(user) if groups is None else groups)
        return path

    def create_namespace(self, name: str) -> None:
        namespaces.create(self.server, self._probe_context(), name)

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace and everything in it; there is no controller that would do it for us."""
        namespaces.delete(self.server, self._probe_context(), name)

    @property
    def audit_log(self) -> Path:
        """The requests of service accounts and the API server's answers: one audit event per line."""
        return self._log_folder / "audit.log"

    @property
    def _log_folder(self) -> Path:
        return self._folder / "log"

    @property
    def _token_key(self) -> Path:
        """Signs and verifies service accounts' tokens."""
        return self._folder / "pki" / "tokens.key"

    @property
    def _audit_policy(self) -> Path:
        return self._folder / "audit-policy.json"

    def _serve(self, name: str, program: Path, flags: dict[str, object]) -> Server:
        assert self._lock is not None, "start() comes first"
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        return Server([program, *arguments], log=self._log_folder / f"{name}.log", keep_open=self._lock)

    def _etcd_flags(self) -> dict[str, object]:
        return {
            "data-dir": self._folder / "etcd",
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": f"http://127.0.0.1:{self._peer_port}",
            "log-level": "warn",
            "unsafe-no-fsync": "true",  # nothing here must survive a power cut
        }

    def _apiserver_flags(self) -> dict[str, object]:
        certificate, key = self._serving
        return {
            "etcd-servers": self._etcd_url,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self._port,
            "cert-dir": self._folder / "pki",
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "client-ca-file": self._authority.certificate,
            "service-account-key-file": self._token_key,
            "service-account-signing-key-file": self._token_key,
            "service-account-issuer": _ISSUER,
            "service-cluster-ip-range": "10.96.0.0/16",
            "authorization-mode": "RBAC",
            "audit-policy-file": self._audit_policy,
            "audit-log-path": self.audit_log,
            # It refuses pods in namespaces without a default service account, which a controller would make.
            "disable-admission-plugins": "ServiceAccount",
        }

    def _probe_context(self) -> ssl.SSLContext:
        """Has the certificate of an administrator, who needs no kubectl."""
        context = ssl.create_default_context(cafile=self._authority.certificate)
        context.load_cert_chain(*self._probe)
        return context

    def _await_ready(self) -> None:
        context = self._probe_context()
        # A proxy that the environment names is not for loopback.
        client = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        deadline = time.monotonic() + _START_SECONDS
        # The default namespace comes a moment after everything else.
        while not all(_answers(client, self.server + path) for path in ("/readyz", "/api/v1/namespaces/default")):
            for server in (self._etcd, self._apiserver):
                if server is not None and not server.is_running:
                    raise ClusterError(f"a server of the control plane ended; {server.log_tail()}")
            if time.monotonic() > deadline and self._apiserver is not None:
                raise ClusterError(f"not ready after {_START_SECONDS:.0f} s; {self._apiserver.log_tail()}")
            time.sleep(0.1)


@contextlib.contextmanager
def connect_or_start(folder: Path, kubeconfig: str | Path | None = None) -> Iterator[Cluster]:
    """The cluster that the user has named, else a control plane of our own for as long as the block runs.

    Args:
        folder: of our own control plane.
        kubeconfig: names a cluster. Only the caller knows what counts as naming: nothing is read from the environment.
    """
    if kubeconfig:
        cluster = Cluster.named(kubeconfig)
        say(NAME, f"using the cluster at {cluster.server}, which {cluster.kubeconfig} names")
        yield cluster
    else:
        with ControlPlane(folder) as plane:
            yield plane


def _groups(user: str) -> list[str]:
    """The groups that Kubernetes gives to a service account, apart from those that everybody has."""
    if not user.startswith("system:serviceaccount:"):
        return []
    namespace = user.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]


def _lock(path: Path) -> int:
    """Lock the folder until the last server in it has ended, which inherits the descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ClusterError(f"a control plane runs in {path.parent} already; stop it first") from None
    return descriptor


def _answers(client: urllib.request.OpenerDirector, url: str) -> bool:
    """Whether it answers with 200.

    Raises:
        ClusterError: its certificate is refused, which waiting does not change.
    """
    try:
        with client.open(url, timeout=5):
            return True
    except OSError as error:  # an answer other than 200 is one, too
        refused = getattr(error, "reason", error)
        if isinstance(refused, ssl.SSLCertVerificationError):
            raise ClusterError(f"the certificate of {url} is refused: {refused.verify_message}") from None
        return False
