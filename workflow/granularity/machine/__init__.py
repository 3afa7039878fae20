"""Where it is computed: devices, leases of GPUs, processes that train together."""
