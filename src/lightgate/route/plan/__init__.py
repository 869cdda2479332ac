"""Plans: which targets are tried for a request, in which order, and when each one starts."""
