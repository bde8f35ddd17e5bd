"""What writes statuses and Events: who waits first, nothing twice, nobody in another's way."""
