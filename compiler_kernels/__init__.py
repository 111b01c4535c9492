"""The compiler: importer, IR, passes, canonical arithmetic, generators, runtime, toolchain. Imports no other room."""
