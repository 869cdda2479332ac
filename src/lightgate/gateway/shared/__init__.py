"""State that several machines share through a Valkey or Redis server, and how to do without it."""
