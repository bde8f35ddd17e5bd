"""The middleware under the name that release 0.1 used in ``--middleware``."""

from tenantzone_runtime.frontend.middleware import TenantMiddleware

__all__ = ["TenantMiddleware"]
