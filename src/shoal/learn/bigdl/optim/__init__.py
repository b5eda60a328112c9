"""How BigDL learns."""
