"""Layers, losses and first weights of BigDL."""
