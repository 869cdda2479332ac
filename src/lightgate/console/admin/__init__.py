"""The console's administration: who may change something, what is changed, and what is noted."""
