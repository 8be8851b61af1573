"""The composition root: settings become edges, a fleet and evaluations. The only room that sees all others."""
