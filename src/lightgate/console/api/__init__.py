"""The data API of the console: what its pages show, as JSON and as CSV, read only."""
