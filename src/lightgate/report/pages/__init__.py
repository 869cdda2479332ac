"""Pages write reports as HTML files."""
