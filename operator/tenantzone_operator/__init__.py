"""The operator: TenantZones and ZonePools in, one runtime config per pool and truthful status out."""
