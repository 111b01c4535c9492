"""``python -m compiler_kernels.policy`` prints the published JSON Schema (docs/examples/policy.schema.json)."""

from compiler_kernels.policy.schema import published_schema

print(published_schema(), end="")
