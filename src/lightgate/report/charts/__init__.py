"""Charts draw reports as pictures: SVG, PNG and curves in the terminal."""
