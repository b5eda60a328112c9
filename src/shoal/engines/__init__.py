"""Who runs a plan: each engine implements `shoal.abc.Engine` and is found by name in `shoal.registry`."""
