"""The node's daemons with their command lines, in the order in which they start."""

import json
from pathlib import Path

import yaml

from hack.controlplane.credentials import ADMIN_GROUP, Authority, new_key, write_kubeconfig
from hack.node import addresses, settings
from hack.node.build import Programs
from hack.node.state import State

Command = list[str | Path]

_ISSUER = "https://kubernetes.default.svc.cluster.local"
_API_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")

_USERS = {
    "kube-controller-manager": ("system:kube-controller-manager", []),
    "kube-scheduler": ("system:kube-scheduler", []),
    "kube-proxy": ("system:kube-proxy", []),
    "kubelet": (f"system:node:{addresses.NAME}", ["system:nodes"]),
    "coredns": ("coredns", [ADMIN_GROUP]),
}
"""Each daemon's user at the API server, and that user's groups."""


def write_daemons(state: State, programs: Programs) -> None:
    """Make certificates and settings, and write down how each daemon is started."""
    authority = Authority(state.pki)
    for name, (user, groups) in _USERS.items():
        write_kubeconfig(state.kubeconfig_of(name), addresses.API_SERVER, authority, user, groups)
    write_kubeconfig(state.kubeconfig, addresses.API_SERVER, authority, "admin", [ADMIN_GROUP])
    _write_settings(state, authority)
    commands = _commands(state, programs, authority)
    state.daemons.write_text(json.dumps({name: [str(part) for part in command] for name, command in commands.items()}))


def _write_settings(state: State, authority: Authority) -> None:
    certificate, key = authority.issue_server("kubelet-server", [addresses.NAME, addresses.NODE])
    folder = state.settings
    (folder / "containerd.toml").write_text(settings.containerd())
    kubelet = settings.kubelet(str(authority.certificate), str(certificate), str(key))
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
    proxy = settings.kube_proxy(str(state.kubeconfig_of("kube-proxy")))
    (folder / "kube-proxy.yaml").write_text(yaml.safe_dump(proxy))
    (folder / "Corefile").write_text(settings.coredns(state))
    (state.cni / "10-pods.conflist").write_text(json.dumps(settings.network()))


def _commands(state: State, programs: Programs, authority: Authority) -> dict[str, Command]:
    folder = state.settings
    return {
        "etcd": _etcd(state, programs),
        "kube-apiserver": _api_server(state, programs, authority),
        "containerd": ["containerd", "--config", folder / "containerd.toml"],
        "kube-controller-manager": [
            programs.kubernetes / "kube-controller-manager",
            *_own_access(state.kubeconfig_of("kube-controller-manager")),
            "--use-service-account-credentials=true",
            f"--root-ca-file={authority.certificate}",
            f"--service-account-private-key-file={state.pki / 'tokens.key'}",
            f"--cluster-signing-cert-file={authority.certificate}",
            f"--cluster-signing-key-file={state.pki / 'ca.key'}",
            "--allocate-node-cidrs=false",
        ],
        "kube-scheduler": [programs.kubernetes / "kube-scheduler", *_own_access(state.kubeconfig_of("kube-scheduler"))],
        "kubelet": [
            programs.kubernetes / "kubelet",
            f"--config={folder / 'kubelet.yaml'}",
            f"--kubeconfig={state.kubeconfig_of('kubelet')}",
            f"--hostname-override={addresses.NAME}",
            f"--node-ip={addresses.NODE}",
        ],
        "kube-proxy": [programs.kubernetes / "kube-proxy", f"--config={folder / 'kube-proxy.yaml'}"],
        "coredns": [programs.coredns, "-conf", folder / "Corefile"],
    }


def _own_access(kubeconfig: Path) -> Command:
    flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [*(f"--{flag}={kubeconfig}" for flag in flags), "--bind-address=127.0.0.1", "--leader-elect=false"]


def _etcd(state: State, programs: Programs) -> Command:
    return [
        programs.control_plane.etcd,
        f"--data-dir={state.etcd}",
        f"--listen-client-urls={addresses.ETCD}",
        f"--advertise-client-urls={addresses.ETCD}",
        f"--listen-peer-urls={addresses.ETCD_PEERS}",
        "--log-level=warn",
        "--unsafe-no-fsync=true",  # nothing here must survive a power cut
    ]


def _api_server(state: State, programs: Programs, authority: Authority) -> Command:
    names = [*_API_NAMES, addresses.NODE, addresses.API_SERVICE]
    certificate, key = authority.issue_server("kube-apiserver", names)
    client_certificate, client_key = authority.issue_client("kube-apiserver-kubelet-client", [ADMIN_GROUP])
    tokens = state.pki / "tokens.key"
    if not tokens.exists():
        new_key(tokens)
    return [
        programs.control_plane.kube_apiserver,
        f"--etcd-servers={addresses.ETCD}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={addresses.NODE}",
        "--secure-port=6443",
        f"--cert-dir={state.pki}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={authority.certificate}",
        f"--service-account-key-file={tokens}",
        f"--service-account-signing-key-file={tokens}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-cluster-ip-range={addresses.SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={authority.certificate}",
        f"--kubelet-client-certificate={client_certificate}",
        f"--kubelet-client-key={client_key}",
    ]
