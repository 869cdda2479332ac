"""One exchange: the attempts of a plan, the commit, the delivery and the settlement."""
