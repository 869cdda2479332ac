"""Reports as pages: HTML files and what they are made from."""
