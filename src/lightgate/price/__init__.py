"""What tokens cost; importing this package loads no price list."""
