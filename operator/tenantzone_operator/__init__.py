"""The operator. It reads TenantZones and ZonePools, and writes a runtime config for each pool, and all statuses."""
