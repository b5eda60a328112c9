"""What runs in the environment that has Vineyard's client; nothing here is imported by the rest of the package."""
