"""Use of the machine: devices, leases of GPUs, processes that train together."""
