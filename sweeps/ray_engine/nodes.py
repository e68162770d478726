"""The nodes of the cluster by Ray's ids: where an attempt ran, and any but the bad ones."""

from collections.abc import Mapping, Sequence

import ray


def hosts() -> dict[str, str]:
    """{Ray's id of a node, alive or dead: its host's name}."""
    return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}


def able_nodes(needs: Mapping[str, float]) -> set[str]:
    """Ray's ids of the living nodes that can run a trial, which `needs` so much of resources."""
    return {
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"]
        and all(node["Resources"].get(name, 0) >= amount for name, amount in needs.items())
    }


def node_of(actor_id: str | None) -> tuple[str, bool]:
    """(Ray's id of the node an actor is or was on, whether it lives); '' where none is known."""
    # The public way to ask needs the dashboard.
    from ray._private.state import actors

    actor = actors(actor_id) if actor_id else {}
    return actor.get("Address", {}).get("NodeID") or "", actor.get("State") == "ALIVE"


def elsewhere(nodes: Sequence[str]) -> dict[str, str] | None:
    """Ray's label selector for any node but these; None for any node at all."""
    return {"ray.io/node-id": f"!in({','.join(nodes)})"} if nodes else None
