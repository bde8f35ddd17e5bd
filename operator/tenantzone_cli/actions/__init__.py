"""The plugin's commands ``advise``, ``migrate``, ``purge``, ``replay``, ``salt`` and ``storage``."""
