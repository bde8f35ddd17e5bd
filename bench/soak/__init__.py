"""The zone core for days in virtual time: its memory must depend on the present, and not on the past."""
