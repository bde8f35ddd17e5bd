"""Keys, tokens and certificates, read from files that Kubernetes replaces."""
