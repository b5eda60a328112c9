"""One command over many shards: what is to run, what is done already, who does it, and what is said about it."""
