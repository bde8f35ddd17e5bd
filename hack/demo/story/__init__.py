"""The story of the demo: its prompts, floods, changes and claims."""
