"""Other tools: their file formats and their definitions, beside ours."""
