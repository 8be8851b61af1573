"""Who may have a session under way, and who may go on with one: decisions for a whole pool. Pure."""
