"""Statistics: the numbers of a cell, its steady window, comparisons and drift."""
