"""A stand-in for kubelet, for one pod: the demo's control plane has no node.

It does the three things that the product relies on, and nothing else: it projects the pod's ConfigMap and Secret
volumes into folders, syncs them at once when the pod changes and otherwise slowly, and writes the pod's status from a
health probe. The engine itself is a process that the demo starts. On a real cluster, kubelet does all of this.

``python -m hack.demo.kubelet --kubeconfig FILE --namespace NS --pod NAME --volumes FOLDER --ip IP --health URL``
"""

import argparse
import asyncio
import base64
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client import ApiException, CoreV1Api, V1ConfigMap, V1Pod, V1Secret, V1Volume

from hack.demo.projection import project

SYNC_SECONDS = 60.0
"""Kubelet's own period: a ConfigMap's change alone is seen no sooner."""

PROBE_SECONDS = 0.5
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Placement:
    """The pod that the stand-in looks after, and where it has put it."""

    namespace: str
    pod: str
    volumes: Path
    """Each ConfigMap or Secret volume of the pod becomes a folder in here, named as the volume."""
    ip: str
    health_url: str


class Kubelet:
    """The stand-in for kubelet, for one pod: it syncs the pod's volumes and reports its health."""

    def __init__(self, api: CoreV1Api, placement: Placement) -> None:
        self._api = api
        self._place = placement
        self._pod_changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_pod())
            tasks.create_task(self._sync_volumes())
            tasks.create_task(self._report_health())

    async def _watch_pod(self) -> None:
        """Wake the sync whenever the pod's annotations, labels or spec change, as kubelet does."""
        seen: object = None
        while True:
            try:
                async with watch.Watch() as events:
                    async for event in events.stream(
                        self._api.list_namespaced_pod,
                        self._place.namespace,
                        field_selector=f"metadata.name={self._place.pod}",
                    ):
                        pod: V1Pod = event["object"]
                        now = (pod.metadata.annotations, pod.metadata.labels, pod.spec)
                        if now != seen:
                            seen = now
                            self._pod_changed.set()
            except (ApiException, aiohttp.ClientError, TimeoutError) as error:
                print(f"watching the pod: {error}", flush=True)
            await asyncio.sleep(RETRY_SECONDS)

    async def _sync_volumes(self) -> None:
        while True:
            wait = SYNC_SECONDS
            try:
                await self._project_volumes()
            except (ApiException, aiohttp.ClientError, TimeoutError) as error:
                # A volume whose ConfigMap must be there and is not yet is tried again soon, as kubelet does.
                wait = RETRY_SECONDS
                print(f"projecting volumes: {getattr(error, 'reason', error)}", flush=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._pod_changed.wait()
            self._pod_changed.clear()

    async def _project_volumes(self) -> None:
        pod = await self._api.read_namespaced_pod(self._place.pod, self._place.namespace)
        for volume in pod.spec.volumes or []:
            found = await self._read_if_there(volume)
            if found is not None and project(self._place.volumes / volume.name, _files(found)):
                print(f"{volume.name}: projected at resource version {found.metadata.resource_version}", flush=True)

    async def _read_if_there(self, volume: V1Volume) -> V1ConfigMap | V1Secret | None:
        """Read a volume like :meth:`_read`; also None if it is missing and the pod starts without it."""
        try:
            return await self._read(volume)
        except ApiException as error:
            source = volume.config_map or volume.secret
            if error.status == 404 and source.optional:
                return None
            raise

    async def _read(self, volume: V1Volume) -> V1ConfigMap | V1Secret | None:
        """Read the object of a volume; None: it is neither a ConfigMap nor a Secret."""
        if volume.config_map is not None:
            return await self._api.read_namespaced_config_map(volume.config_map.name, self._place.namespace)
        if volume.secret is not None:
            return await self._api.read_namespaced_secret(volume.secret.secret_name, self._place.namespace)
        return None

    async def _report_health(self) -> None:
        reported: bool | None = None
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            while True:
                healthy = await self._is_healthy(http)
                if healthy != reported:
                    try:
                        await self._write_status(healthy)
                        reported = healthy
                    except (ApiException, aiohttp.ClientError, TimeoutError) as error:
                        print(f"writing the pod's status: {getattr(error, 'reason', error)}", flush=True)
                await asyncio.sleep(PROBE_SECONDS)

    async def _is_healthy(self, http: aiohttp.ClientSession) -> bool:
        try:
            async with http.get(self._place.health_url) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _write_status(self, healthy: bool) -> None:
        pod = await self._api.read_namespaced_pod(self._place.pod, self._place.namespace)
        await self._api.patch_namespaced_pod_status(
            self._place.pod,
            self._place.namespace,
            {"status": pod_status(pod, self._place.ip, healthy, datetime.now(UTC))},
        )
        print(f"ready: {healthy}", flush=True)


def pod_status(pod: V1Pod, ip: str, healthy: bool, now: datetime) -> dict[str, Any]:
    """The status of a running pod, ready or not."""
    at = now.isoformat(timespec="seconds")
    ready = "True" if healthy else "False"
    return {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [
            {"type": kind, "status": ready, "lastTransitionTime": at} for kind in ("ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": healthy,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": at}},
            }
            for container in pod.spec.containers
        ],
    }


def _files(found: V1ConfigMap | V1Secret) -> dict[str, bytes]:
    encoded = (found.binary_data if isinstance(found, V1ConfigMap) else found.data) or {}
    texts = (found.data if isinstance(found, V1ConfigMap) else None) or {}
    files = {name: text.encode() for name, text in texts.items()}
    return files | {name: base64.b64decode(content) for name, content in encoded.items()}


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.demo.kubelet", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--pod", required=True)
    parser.add_argument("--volumes", required=True, type=Path)
    parser.add_argument("--ip", required=True)
    parser.add_argument("--health", required=True, help="URL that answers 200 when the engine is ready")
    arguments = parser.parse_args()
    await config.load_kube_config(arguments.kubeconfig)
    placement = Placement(arguments.namespace, arguments.pod, arguments.volumes, arguments.ip, arguments.health)
    async with client.ApiClient() as connection:
        await Kubelet(CoreV1Api(connection), placement).run()


if __name__ == "__main__":
    asyncio.run(_main())
