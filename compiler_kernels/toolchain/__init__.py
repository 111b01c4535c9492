"""Compiler drivers: generated C and the runtime in, an executable and a report of how it was made out."""
