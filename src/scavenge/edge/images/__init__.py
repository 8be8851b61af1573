"""Container images: the engine, registries, archives and stores that they come from."""
