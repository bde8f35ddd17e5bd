"""``kubectl tenantzone``, short ``kubectl tz``: shows what zones use, why a zone is not ready, and what is broken."""
