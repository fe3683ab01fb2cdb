"""Commands for a terminal: thin shells over the front doors."""
