"""A predictor class around a session made from bytes, with run options, binding, and the errors users catch."""

import sys
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession, RunOptions


class Predictor:
    def __init__(self, path):
        self.session = InferenceSession(Path(path).read_bytes(), None, ["CPUExecutionProvider"])
        self.input_name = self.session.get_inputs()[0].name
        self.output_names = [o.name for o in self.session.get_outputs()]

    def __call__(self, array):
        return self.session.run(self.output_names, {self.input_name: array}, run_options=RunOptions())

    def bound(self, array):
        binding = self.session.io_binding()
        binding.bind_cpu_input(self.input_name, array)
        for name in self.output_names:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()


predictor = Predictor(sys.argv[1])
shape = [d if isinstance(d, int) else 2 for d in predictor.session.get_inputs()[0].shape]
x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
results = [*predictor(x), *predictor.bound(x[:, ::-1])]

refused = []
for bad in (x.astype(np.float64), x[0], x[..., :-1]):
    try:
        predictor(bad)
    except Exception as error:
        refused.append(len(str(error)) > 20)
try:
    predictor.session.run(None, {"no such input": x})
except ValueError as error:
    refused.append("no such input" in str(error))
results.append(np.array(refused))
assert len(refused) == 4 and all(refused)
