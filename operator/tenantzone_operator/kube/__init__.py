"""The Kubernetes API: clients, the watched objects, and the store that keeps them."""
