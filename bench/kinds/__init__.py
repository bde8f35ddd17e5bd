"""The demo's flood on each kind of model and feature: cached tokens kept and tokens equal to stock's."""
