"""Who can be called: the catalogue of providers, targets and keys."""
