"""The endpoint source type ``ec2``: inference servers on EC2 instances, found by filters.

versionadded: 0.1
"""

from __future__ import annotations

from scavenge.plugin import EndpointSourceType, hookimpl
from scavenge_ec2.config import Ec2Config
from scavenge_ec2.source import open_ec2


@hookimpl
def scavenge_endpoint_sources() -> list[EndpointSourceType]:
    """The one type of this package."""
    return [EndpointSourceType(name="ec2", config=Ec2Config, open=open_ec2)]
