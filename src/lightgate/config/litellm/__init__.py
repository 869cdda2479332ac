"""Import of a LiteLLM proxy's configuration."""
