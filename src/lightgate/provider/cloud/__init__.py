"""What lets requests in at the clouds where no key does: signatures, and tokens that end."""
