"""The endpoints of the data plane: which one a request is for, and what it is answered."""
