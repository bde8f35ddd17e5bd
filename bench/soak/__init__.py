"""The zone core for days in virtual time: what it keeps must depend on what there is now, and not on what has been."""
