"""What happened to zones, as events for the audit log and the journal: refusals, preemptions, changes of limits."""
