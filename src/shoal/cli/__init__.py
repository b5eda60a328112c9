"""The ``shoal`` command and the tar tools, each of which is a command of its own, too."""
