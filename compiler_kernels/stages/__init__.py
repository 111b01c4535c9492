"""The compile stages as pure functions, and the table that says what each reads (docs/architecture.md)."""
