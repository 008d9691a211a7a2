"""What ``python -m torch_spyre`` is made of. Nothing else imports it."""
