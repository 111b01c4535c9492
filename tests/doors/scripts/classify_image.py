"""An image classifier as people write it: options, providers, normalisation, softmax, the three best classes."""

import sys

import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], sess_options=options, providers=["CPUExecutionProvider"])

model_input = session.get_inputs()[0]
height, width = model_input.shape[2:]
pixels = np.random.default_rng(7).integers(0, 256, (3, height, width)).astype(np.uint8)
image = (pixels.mean(axis=0, dtype=np.float32) / 255.0).astype(np.float32)
batch = np.expand_dims(image, (0, 1))

scores = session.run([session.get_outputs()[0].name], {model_input.name: batch})[0]
best = np.argsort(scores[0])[::-1][:3]
print([(int(i), round(float(scores[0][i]), 3)) for i in best])

results = [scores, best]
