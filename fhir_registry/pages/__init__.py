"""Pages for people: the registry in a browser, in Chinese and English, without JavaScript (docs/registry.md)."""
