"""How a network is trained and evaluated."""
