"""HTTP/1.1 on Trio: connections to one endpoint, made for many requests in flight and for servers that vanish."""
