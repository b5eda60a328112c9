"""Sources x faults x changes of world size x engines: what goes wrong, and that nothing comes of it."""
