"""The compiler: importer, IR, passes, canonical arithmetic, generators, runtime and toolchain. Imports no other room."""
