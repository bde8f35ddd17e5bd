"""Programs of others that tests run next to the product, installed as locked."""
