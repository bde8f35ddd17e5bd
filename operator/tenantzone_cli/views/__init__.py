"""The plugin's commands ``top``, ``explain`` and ``advise --watch``, which show zones and pools."""
