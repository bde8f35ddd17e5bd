"""The subcommands of ``tenantzone-replay``, and their arguments."""
