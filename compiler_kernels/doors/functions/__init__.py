"""A small subset of Python and NumPy to ONNX, by reading the source: nothing of the user's is executed."""
