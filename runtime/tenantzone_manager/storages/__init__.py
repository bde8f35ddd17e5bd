"""The storages of blocks, which implement :class:`~tenantzone_manager.storages.backend.DataStorageBackend`."""
