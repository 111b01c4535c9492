"""Where onnxruntime's users find its exceptions."""
