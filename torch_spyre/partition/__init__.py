"""How the work of an op is shared by cores, in integers: see README.md."""
