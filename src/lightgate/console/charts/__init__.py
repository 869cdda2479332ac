"""Charts: targets over time, cost against speed, machines of one's own, races and hedges."""
