"""vLLM's own tests of its scheduler core, run with vLLM's classes and with ours: what passes there must pass here."""
