"""What becomes of container images: names, plans, archives. Pure."""
