"""Samples from one format to another: what each is read from, what its fields become, and how it is written."""
