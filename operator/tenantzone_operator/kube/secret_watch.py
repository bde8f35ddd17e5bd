"""Watches the metadata of the Secrets that a pool's engine pods mount, each by its name."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing

import aiohttp

from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.pod_watch import FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS, WATCH_SECONDS
from tenantzone_operator.kube.resources import Pod
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.logs import About

MAX_SECRETS = 16
"""Maximum number of watched Secrets per pool, because any pod's author decides how many Secrets it mounts."""
FORBIDDEN_SECONDS = 30.0
"""Seconds until the retry for a Secret that the operator may not watch."""

_TRANSIENT = (RestError, aiohttp.ClientError, TimeoutError)


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
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._versions: dict[str, str] = {}
        self._unwatched: dict[str, str] = {}
        """Why Secrets can't be watched, by the Secret's name."""
        self._too_many: frozenset[str] = frozenset()

    @property
    def unwatched(self) -> Collection[str]:
        """Names of Secrets without a watch, because it is forbidden, has not started yet, or would exceed the limit."""
        return self._unwatched.keys() | self._too_many

    def hash_for(self, pod: Pod) -> str:
        """Returns :func:`secrets_hash` for the current versions."""
        return secrets_hash(pod, self._versions, self.unwatched)

    def follow(self, names: Sequence[str]) -> None:
        """Watch exactly these Secrets from now on; if there are too many, only the first ones."""
        wanted = names[:MAX_SECRETS]
        self._too_many = frozenset(names).difference(wanted)
        for name in self._tasks.keys() - set(wanted):
            self._tasks.pop(name).cancel()
            self._versions.pop(name, None)
            self._unwatched.pop(name, None)
        for name in wanted:
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._run(name), name=f"secret {self._namespace}/{name}")

    def stop(self) -> None:
        self.follow(())

    async def _run(self, name: str) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            wait = FIRST_PAUSE_SECONDS
            try:
                await self._watch(name)
                pause = FIRST_PAUSE_SECONDS
            except _TRANSIENT as error:
                is_forbidden = isinstance(error, RestError) and error.status == 403
                # After a broken connection, the known version remains valid.
                if is_forbidden or name not in self._versions:
                    self._complain(name, explain(error))
                wait = FORBIDDEN_SECONDS if is_forbidden else pause
                pause = min(2 * pause, LAST_PAUSE_SECONDS)
            except Exception as error:
                self._log.exception("secret %s/%s", self._namespace, name)
                self._complain(name, explain(error))
                wait = LAST_PAUSE_SECONDS
            await asyncio.sleep(wait)

    async def _watch(self, name: str) -> None:
        """List the Secret, and watch it until the API server ends the watch as usual."""
        version, listed = await self._api.secret_version(self._namespace, name)
        self._know(name, version)
        seconds = random.randint(*WATCH_SECONDS)
        async with aclosing(self._api.watch_secret(self._namespace, name, listed, seconds)) as versions:
            async for version in versions:
                self._know(name, version)

    def _know(self, name: str, version: str) -> None:
        is_news = self._versions.get(name) != version or name in self._unwatched
        self._versions[name] = version
        self._unwatched.pop(name, None)
        if is_news:
            self._changed()

    def _complain(self, name: str, complaint: str) -> None:
        if self._unwatched.get(name) != complaint:
            self._log.warning("secret %s/%s can't be watched: %s; retrying", self._namespace, name, complaint)
            self._unwatched[name] = complaint
            self._versions.pop(name, None)
            self._changed()


def most_mounted(pods: Iterable[Pod]) -> list[str]:
    """Returns the names of the mounted Secrets, most often mounted first, so that one odd pod's Secrets come last."""
    mounts = Counter(name for pod in pods for name in set(pod.secrets))
    return sorted(mounts, key=lambda name: (-mounts[name], name))


def secrets_hash(pod: Pod, versions: Mapping[str, str], unwatched: Collection[str]) -> str:
    """Returns the hash of the versions of the Secrets that a pod mounts.

    Args:
        pod: the pod.
        versions: the known resource versions by name; empty for a Secret that does not exist.
        unwatched: the names of Secrets that can't be watched.

    Returns:
        The hash; empty if the pod mounts no watched Secret, or if a version is not known yet.
    """
    watched = [name for name in pod.secrets if name not in unwatched]
    if not watched or not all(name in versions for name in watched):
        return ""
    text = "".join(f"{name}={versions[name]}\n" for name in watched)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
