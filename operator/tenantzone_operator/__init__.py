"""The operator: reads TenantZones and ZonePools, writes one runtime config per pool and the objects' status."""
