"""What speaks with the Kubernetes API: clients, the objects that are watched, and where they are kept."""
