"""Reports as pictures: SVG, PNG and terminal curves."""
