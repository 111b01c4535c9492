"""Several inputs in a dict, all outputs with ``None``, several batch sizes through one session."""

import sys

import numpy as np
import onnxruntime

sess = onnxruntime.InferenceSession(sys.argv[1])
print(onnxruntime.__version__, onnxruntime.get_device(), sess.get_providers())
assert "CPUExecutionProvider" in onnxruntime.get_available_providers()

rng = np.random.default_rng(3)
results = []
for batch in (1, 3, 1):
    feed = {}
    for item in sess.get_inputs():
        shape = [dim if isinstance(dim, int) else batch for dim in item.shape]
        assert item.type == "tensor(float)"
        feed[item.name] = rng.standard_normal(shape).astype(np.float32)
    outputs = sess.run(None, feed)
    assert len(outputs) == len(sess.get_outputs())
    for node, value in zip(sess.get_outputs(), outputs, strict=True):
        assert len(node.shape) == value.ndim
        results.append(value)
