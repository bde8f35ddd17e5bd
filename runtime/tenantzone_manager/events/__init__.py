"""Events: who wrote, read and removed which blocks, and when, on request and in the background."""
