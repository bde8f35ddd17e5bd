"""What was asked of the manager and what it did by itself, by block: who wrote, read and removed which, and when."""
