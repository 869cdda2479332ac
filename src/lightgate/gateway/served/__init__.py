"""What a worker serves under one snapshot: models, targets, keys, priors."""
