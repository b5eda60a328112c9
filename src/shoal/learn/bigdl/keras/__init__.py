"""Models of BigDL in the manner of Keras."""
