"""The places that blocks lie in, each behind :class:`~tenantzone_manager.storages.backend.DataStorageBackend`."""
