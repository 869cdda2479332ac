"""The configuration file `lightgate.toml`; importing this package loads no pydantic."""
