"""The storages of blocks, each behind :class:`~tenantzone_manager.storages.backend.DataStorageBackend`."""
