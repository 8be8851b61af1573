"""LLM evaluations on whatever inference servers happen to be alive."""
