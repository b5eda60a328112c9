"""The side of a guest: what a process of another Python environment runs, and what both sides have in common.

These files are read by Python 3.8 and newer, in environments that know nothing of Shoal. So they import the standard
library alone at their top, never each other; ``serve`` loads its neighbours by their place. Numpy, pandas and pyarrow
are used where a value asks for them and they are there.
"""
