"""Watches the metadata of the Secrets that a pool's engine pods mount, with one watch per Secret."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.informer import Informer
from tenantzone_operator.kube.resources import Pod, Secret, read_secret
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError
from tenantzone_operator.kube.store import InformerCache
from tenantzone_operator.logs import About

MAX_SECRETS = 16
"""Maximum number of watched Secrets per pool, needed because the authors of pods decide how many Secrets pods mount."""
FORBIDDEN_SECONDS = 30.0
"""Seconds until the retry for a Secret that the operator may not watch."""


class SecretWatches:
    """Tracks the resource versions of some Secrets of a namespace.

    Args:
        namespace: the namespace of the Secrets.
        api: lists and watches Secrets.
        changed: called when a version changes, or when a Secret starts or stops being watchable.
        log: logs that a Secret can't be watched.
    """

    def __init__(self, namespace: str, api: Api, changed: Callable[[], None], log: About) -> None:
        self._namespace = namespace
        self._api = api
        self._changed = changed
        self._log = log
        self._informers: dict[str, Informer[Secret]] = {}
        """Informer of each watched Secret, by the Secret's name."""
        self._unwatched: dict[str, str] = {}
        """Reason why a Secret can't be watched, by the Secret's name."""
        self._too_many: frozenset[str] = frozenset()

    @property
    def unwatched(self) -> Collection[str]:
        """Names of Secrets without a watch: the watch is forbidden, could not start yet, or would exceed the limit."""
        return self._unwatched.keys() | self._too_many

    def hash_for(self, pod: Pod) -> str:
        """Returns the hash of the current versions of the Secrets that a pod mounts; see :func:`secrets_hash`."""
        listed = {name: informer.cache for name, informer in self._informers.items() if informer.is_listed}
        versions = {name: next((found.version for found in cache), "") for name, cache in listed.items()}
        return secrets_hash(pod, versions, self.unwatched)

    def follow(self, names: Sequence[str]) -> None:
        """Watch the named Secrets, at most ``MAX_SECRETS``, and stop the watches of all other Secrets."""
        wanted = names[:MAX_SECRETS]
        self._too_many = frozenset(names).difference(wanted)
        for name in self._informers.keys() - set(wanted):
            self._informers.pop(name).stop()
            self._unwatched.pop(name, None)
        for name in wanted:
            if name not in self._informers:
                self._informers[name] = self._start(name)

    def stop(self) -> None:
        self.follow(())

    def _start(self, name: str) -> Informer[Secret]:
        return Informer(
            f"secret {self._namespace}/{name}",
            partial(self._api.list_secret, self._namespace, name),
            partial(self._api.watch_secret, self._namespace, name),
            InformerCache(read_secret),
            self._changed,
            partial(self._fail, name),
            self._log,
            listed=partial(self._know, name),
            forbidden_seconds=FORBIDDEN_SECONDS,
        )

    def _know(self, name: str) -> None:
        if self._unwatched.pop(name, None) is not None:
            self._changed()

    def _fail(self, name: str, error: Exception, _: bool) -> None:
        informer = self._informers.get(name)
        # After a broken connection, the last version that was read remains valid.
        is_broken = isinstance(error, REQUEST_ERRORS) and not (isinstance(error, RestError) and error.is_forbidden)
        if informer is None or (is_broken and informer.is_listed and name not in self._unwatched):
            return
        complaint = explain(error)
        if self._unwatched.get(name) != complaint:
            self._log.warning("secret %s/%s can't be watched: %s; retrying", self._namespace, name, complaint)
            self._unwatched[name] = complaint
            self._changed()


def most_mounted(pods: Iterable[Pod]) -> list[str]:
    """Returns the names of mounted Secrets, in descending order of the number of pods that mount each Secret."""
    mounts = Counter(name for pod in pods for name in set(pod.secrets))
    return sorted(mounts, key=lambda name: (-mounts[name], name))


def secrets_hash(pod: Pod, versions: Mapping[str, str], unwatched: Collection[str]) -> str:
    """Returns the hash of the versions of the Secrets that a pod mounts.

    Args:
        pod: the pod.
        versions: the known versions by Secret name; an empty version for a Secret that does not exist.
        unwatched: the names of Secrets that can't be watched.

    Returns:
        The hash; empty if the pod mounts no watched Secret, or if a version is not known yet.
    """
    watched = [name for name in pod.secrets if name not in unwatched]
    if not watched or not all(name in versions for name in watched):
        return ""
    text = "".join(f"{name}={versions[name]}\n" for name in watched)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
