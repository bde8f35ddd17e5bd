"""Pure functions that parse, check and build the ConfigMap with a pool's runtime config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenantzone_contract.kube_names import GROUP, OPERATOR
from tenantzone_contract.zone_config.packing import ConfigFiles, config_map_data, config_map_keys, files_of
from tenantzone_contract.zone_config.specs import Body
from tenantzone_operator.kube.resources import Pool

POOL_LABEL = f"{GROUP}/pool"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A pool's ConfigMap, as read from the API server."""

    uid: str
    version: str
    labels: Mapping[str, str]
    owners: tuple[str, ...]
    """Uids in the owner references. Kubernetes deletes the ConfigMap once all its owners are deleted."""
    keys: Mapping[str, frozenset[str]]
    """Keys of the entries in ``data`` and in ``binaryData``, by the field's name."""
    files: ConfigFiles
    """Files of the config. The config's text is empty if the ConfigMap contains no config."""

    def belongs_to(self, pool: Pool) -> bool:
        """Returns whether the operator created the ConfigMap for a pool of this name, possibly for an earlier pool."""
        return self._is_labelled(pool) or pool.meta.uid in self.owners

    def is_in_order(self, pool: Pool) -> bool:
        """Returns whether labels and owner match the pool, and the only entries are a config and its signature."""
        is_config_alone = self.keys == config_map_keys(self.files)
        return self._is_labelled(pool) and self.owners == (pool.meta.uid,) and is_config_alone

    def _is_labelled(self, pool: Pool) -> bool:
        return config_map_labels(pool.meta.name).items() <= self.labels.items()


def config_map_labels(pool: str) -> dict[str, str]:
    """Returns the labels that mark a ConfigMap as managed by the operator for this pool."""
    return {MANAGED_BY_LABEL: OPERATOR, POOL_LABEL: pool}


def read_config_map(body: Body) -> ConfigMap:
    """Parse a ConfigMap from its JSON in the Kubernetes API."""
    metadata = body["metadata"]
    return ConfigMap(
        uid=metadata["uid"],
        version=str(metadata["resourceVersion"]),
        labels=metadata.get("labels") or {},
        owners=tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ()),
        keys={field: frozenset(body.get(field) or ()) for field in ("data", "binaryData")},
        files=files_of(body),
    )


def data_to_write(files: ConfigFiles, found: ConfigMap | None) -> dict[str, Any]:
    """Returns ``data`` and ``binaryData`` of the request that writes the files. The value None removes a key."""
    wanted = config_map_data(files)
    if found is None:
        return {**wanted}
    return {field: dict.fromkeys(found.keys[field]) | data for field, data in wanted.items()}
