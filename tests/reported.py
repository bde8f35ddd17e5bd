"""The required parts of an engine's report that most tests are not about."""

from typing import Any

from tenantzone_contract.reports.report import AdminPortStatus, IdentityReport, SaltKeyStatus
from tenantzone_contract.zone_config.identity import identity_digest

SETTINGS: dict[str, Any] = {
    "salt_key": SaltKeyStatus(),
    "identity": IdentityReport(kind="APIKeys", digest=identity_digest(None)),
    "admin_port": AdminPortStatus(),
}
"""Settings of an engine with API keys, a salt key of its own and a protected admin port."""
