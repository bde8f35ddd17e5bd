"""Events of zones for the audit journal, such as evictions, preemptions and refused requests."""
