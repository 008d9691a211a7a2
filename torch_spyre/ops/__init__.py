"""The ops of the device: the op table, eager kernels, fallbacks."""
