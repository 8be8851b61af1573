"""The gateway: an OpenAI-compatible server in front of the pools."""
