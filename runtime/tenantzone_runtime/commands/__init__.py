"""The subcommands of ``tenantzone-runtime`` that run or end an engine."""
