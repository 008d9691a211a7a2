"""What compiled graphs call: kernels that are found or compiled, and launched."""
