"""Programs that Debian and Ubuntu package, for tests and tools: Prometheus, Alertmanager, Redis, Chromium.

A program on PATH is used as it is. Otherwise the package is downloaded and unpacked into the user's cache: that needs
no root, installs nothing on the machine and starts no service. Chromium also needs libraries and is installed, which
needs root.
"""

from hack.debian.programs import DebianError, ensure

__all__ = ["DebianError", "ensure"]
