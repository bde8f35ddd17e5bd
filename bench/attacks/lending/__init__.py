"""What a borrower learns of a lender from its own evictions and waits."""
