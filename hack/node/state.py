"""A node's files: one folder, removed when the node stops."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class State:
    """The folders and files of one node."""

    folder: Path

    def make(self) -> None:
        """Make the folders anew: nothing of an earlier node is taken over."""
        shutil.rmtree(self.etcd, ignore_errors=True)
        for folder in (self.logs, self.images, self.kubelet, self.containerd, self.pods, self.cni, self.settings):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

    @property
    def logs(self) -> Path:
        """One file for each daemon."""
        return self.folder / "log"

    @property
    def images(self) -> Path:
        """Image archives that are imported when the node comes up."""
        return self.folder / "images"

    @property
    def settings(self) -> Path:
        """The daemons' configuration files."""
        return self.folder / "settings"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def etcd(self) -> Path:
        return self.folder / "etcd"

    @property
    def kubelet(self) -> Path:
        """Seen as /var/lib/kubelet inside."""
        return self.folder / "kubelet"

    @property
    def containerd(self) -> Path:
        """Seen as /var/lib/containerd inside."""
        return self.folder / "containerd"

    @property
    def pods(self) -> Path:
        """Seen as /var/log/pods inside."""
        return self.folder / "pods"

    @property
    def cni(self) -> Path:
        """Seen as /etc/cni/net.d inside."""
        return self.folder / "cni"

    @property
    def daemons(self) -> Path:
        """Name and command of each daemon, in the order in which they start."""
        return self.folder / "daemons.json"

    @property
    def first_process(self) -> Path:
        """The number of the first process inside, as seen from outside; there once it runs."""
        return self.folder / "first-process"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.kubeconfig"

    def kubeconfig_of(self, name: str) -> Path:
        return self.pki / f"{name}.kubeconfig"
