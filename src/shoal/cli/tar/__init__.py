"""Tools for tar shards, one module each: ``tarcat``, ``tarsplit`` and their kin, and ``shoal tar cat`` and so on."""
