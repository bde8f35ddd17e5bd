"""The subcommands of ``tenantzone-replay``, with their arguments."""
