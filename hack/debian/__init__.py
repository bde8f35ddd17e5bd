"""Programs that Debian and Ubuntu package, for tests and tools: Prometheus, Alertmanager, Redis, Chromium.

What PATH has is used. Else the package is downloaded and unpacked into the user's cache: that needs no root, installs
nothing on the machine and starts no service. Chromium needs libraries beside it and is installed, which needs root.
"""

from hack.debian.programs import DebianError, ensure

__all__ = ["DebianError", "ensure"]
