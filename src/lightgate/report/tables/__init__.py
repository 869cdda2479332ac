"""Tables write reports as text: rows, figures, sentences, CSV, the live view."""
