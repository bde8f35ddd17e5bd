"""Events: an audit log of the callers and background tasks that wrote, read or removed blocks."""
