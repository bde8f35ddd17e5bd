"""``kubectl tenantzone``, short ``kubectl tz``: what the zones hold, why one is not ready, what is broken."""
