"""What the agents that run external programs share: their installation and what is mounted for them."""
