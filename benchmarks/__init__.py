"""What is timed or trained: networks, benchmark, comparison of bits (docs/benchmarks.md). Not part of the product."""
