"""The machine that computes: devices, leases of GPUs, processes that train together."""
