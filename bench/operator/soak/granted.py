"""Checks from ConfigMap events, without I/O, that no generation of a zone that was granted is taken back."""

from typing import Any

from tenantzone_contract.zone_config.config import ConfigError
from tenantzone_contract.zone_config.packing import files_of, unpack_config
from tenantzone_operator.kube.names import config_map_name


class Granted:
    """Records the zones that ConfigMaps grant; `look` must get every event. Zones may change, but not be deleted."""

    def __init__(self) -> None:
        self._generations: dict[str, dict[str, int]] = {}
        """Generation of each zone's latest entry, by ConfigMap and zone."""
        self.taken_back: list[str] = []
        """Violations, as sentences."""

    def look(self, event: dict[str, Any]) -> None:
        name = event["object"]["metadata"]["name"]
        if not name.startswith(config_map_name("")):
            return
        before = self._generations.get(name, {})
        try:
            config = unpack_config(files_of(event["object"]))
        except ConfigError as error:
            self.taken_back.append(f"{name} can't be read: {error}")
            return
        now = {zone.name: zone.generation for zone in config.zones} if event["type"] != "DELETED" else {}
        for zone, generation in before.items():
            if zone not in now:
                self.taken_back.append(f"{name} has no zone {zone} any more")
            elif now[zone] < generation:
                self.taken_back.append(f"{name} has zone {zone} at {now[zone]} again, after {generation}")
        self._generations[name] = now
