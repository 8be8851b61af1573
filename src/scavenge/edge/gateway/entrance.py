"""What the connections of a gateway share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from scavenge.calls import Page
from scavenge.edge.gateway.clients import Clients
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.routes import PageRoute, Route, check_encoding, check_local, check_token, route_of
from scavenge.edge.gateway.wire import Head, Refusal
from scavenge.runtime.ports import ModelDoor


@attrs.define(eq=False)
class Entrance:
    """Who may come in, and to what."""

    door: ModelDoor
    token: str | None = attrs.field(repr=False)
    on_bug: Callable[[BaseException], object]
    limits: GatewayLimits
    pages: Mapping[str, Callable[[], Page]] = attrs.field(factory=dict)
    clients: Clients = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.clients = Clients(self.limits.max_waiting, self.limits.shed_after_s, self.limits.late_s)

    def admit(self, head: Head) -> Route:
        """What a request is for, by its head. Raises :class:`Refusal` where it is not to be answered."""
        if self.token is None:
            check_local(head)
        route = route_of(head, self.pages)
        is_open = isinstance(route, PageRoute) and route.path in self.limits.open_pages
        if self.token is not None and not is_open:
            check_token(head, self.token)
        check_encoding(head)
        if self.clients.stopping:
            said = "the gateway stops and takes no more requests"
            raise Refusal(503, "stopping", said, {"Retry-After": str(self.limits.retry_after_s)})
        return route
