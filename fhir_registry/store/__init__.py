"""Where resources lie: current versions, history and search index."""
