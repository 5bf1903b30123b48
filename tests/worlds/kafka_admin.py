"""What tests of the admin requests share: version ends, an authorizer, short requests."""

from __future__ import annotations

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, ApiKey
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from worlds.broker import Wire, World

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def ends(key: ApiKey) -> list[int]:
    """The lowest and the highest version served, once if they are the same."""
    versions = ACCEPTED_VERSIONS[key]
    return sorted({versions.low, versions.high})


class Forbids(AllowAll):
    """Allows everything but some operations on one kind of resource."""

    def __init__(self, resource: Resource, *operations: Operation) -> None:
        self.resource = resource
        self.operations = operations

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return resource is not self.resource or operation not in self.operations


def forbidden(resource: Resource, *operations: Operation) -> Wire:
    return Wire(World(authorizer=Forbids(resource, *operations)))


def describe(
    wire: Wire,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> m.DescribeConfigsResponseResource:
    resource = m.DescribeConfigsRequestResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    request = m.DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = wire.ask(request, version, m.DescribeConfigsResponse).results
    return result


def value_of(wire: Wire, resource_type: int, name: str, key: str) -> tuple[str | None, int]:
    """Value and source of one key."""
    (config,) = describe(wire, resource_type, name, [key]).configs
    return config.value, config.config_source


def increment(
    wire: Wire,
    resource_type: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> m.IncrementalAlterConfigsResponseResource:
    resource = m.IncrementalAlterConfigsRequestResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            m.IncrementalAlterConfigsRequestConfig(name=key, config_operation=what, value=value)
            for key, what, value in changes
        ],
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = wire.ask(request, version, m.IncrementalAlterConfigsResponse).responses
    return result
