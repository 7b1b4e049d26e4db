"""What all resource types share. A type overrides what Google does differently for it."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from typing import Any, ClassVar

from sandbox.cloud.gcp.check import Rules
from sandbox.cloud.gcp.errors import CloudError, already_exists, bad_request
from sandbox.cloud.gcp.schema import Property, properties
from sandbox.cloud.gcp.store import Record, Values
from sandbox.cloud.gcp.values import UNKNOWN, Sensitive, empty, known
from sandbox.cloud.gcp.world import World


class Kind:
    """The behaviour of one resource type.

    service: the API that must be enabled. rules: what Check refuses beyond the schema. links:
    properties whose value may be a name, a path or a full address of the same thing. replaced,
    updated: property paths for which the schema says the opposite of what was seen.
    """

    token: ClassVar[str]
    service: ClassVar[str] = ""
    rules: ClassVar[Rules] = {}
    links: ClassVar[frozenset[str]] = frozenset()
    replaced: ClassVar[frozenset[str]] = frozenset()
    updated: ClassVar[frozenset[str]] = frozenset()
    survives: ClassVar[bool] = False  # a deleted one keeps its name taken, as identity pools do

    def __init__(self) -> None:
        self.table: dict[str, Property] = properties(self.token)
        self.labels = next((n for n in ("resourceLabels", "labels") if n in self.table), None)
        if "effectiveLabels" not in self.table:
            self.labels = None

    # --- what a type says about itself -----------------------------------------------------

    def identity(self, inputs: Values, world: World) -> str:
        """The id that the engine keeps. Called once, at creation."""
        raise NotImplementedError

    def title(self, inputs: Values, world: World) -> str:
        """What a 409 says about the name that is taken."""
        return f"The resource '{self.identity(inputs, world)}' already exists"

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        """Outputs that follow from the inputs; they win over the inputs of the same name."""
        return {}

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        """Outputs that Google makes up at creation and keeps afterwards."""
        return {}

    def planned(self, inputs: Values, world: World) -> Values:
        """Outputs that the provider can already tell at preview, before the creation."""
        return {}

    def accept(self, inputs: Values, world: World) -> None:
        """Google's own check of a creation or update. Raises CloudError."""

    def created(self, record: Record, world: World) -> None:
        """What else happens at a creation. May raise CloudError: then nothing was created."""

    def changed(self, record: Record, world: World) -> None:
        """What else happens at an update."""

    def deleting(self, record: Record, world: World) -> None:
        """Refuses a deletion by raising CloudError, or does what else belongs to it."""

    # --- shared ------------------------------------------------------------------------------

    def same(self, path: str, old: Any, new: Any) -> bool:
        """Whether Google takes both values for the same, whatever their spelling."""
        return path in self.links and _last(old) == _last(new)

    def immutable(self, path: str, prop: Property, old: Any, new: Any) -> bool:
        plain = "".join(part.split("]")[-1] for part in path.split("["))
        top = plain.split(".")[0]
        if plain in self.updated or top in self.updated:
            return False
        if prop.force_new or plain in self.replaced or top in self.replaced:
            return True
        # A block that comes or goes replaces where a value in it would.
        block = old if new is None else new
        return (old is None or new is None) and prop.block and _holds_immutable(prop.fields, block)

    def label_outputs(self, inputs: Values, world: World) -> Values:
        if self.labels is None:
            return {}
        given = inputs.get(self.labels)
        if given is not None and not known(given):
            return {"effectiveLabels": UNKNOWN, "pulumiLabels": UNKNOWN}
        merged = world.labels(given)
        return {"effectiveLabels": merged, "pulumiLabels": merged}

    def check_labels(self, inputs: Values) -> None:
        """Google's rule for labels, which no preview applies. Raises CloudError."""
        for key, value in (inputs.get(self.labels or "") or {}).items():
            plain = key.replace("-", "").replace("_", "")
            if key != key.lower() or value != value.lower() or not plain.isalnum() or len(key) > 63:
                raise bad_request(
                    f"Invalid value for field 'labels': label '{key}: {value}' must consist of "
                    "lower-case letters, numbers, underscores and dashes"
                )

    def outputs(self, inputs: Values, world: World, id_: str, kept: Values) -> Values:
        """All outputs: the inputs, what Google keeps, what follows, the labels."""
        stable = {k: v for k, v in kept.items() if self.table[k].computed and k not in inputs}
        state = {**stable, **inputs, **self.computed(inputs, world, id_)}
        state |= self.label_outputs(inputs, world)
        if "project" in self.table:
            state.setdefault("project", world.of(inputs))
        return state

    def preview(self, inputs: Values, world: World) -> Values:
        """The outputs of a creation that is only planned: unknown where Google decides."""
        waiting = {k: UNKNOWN for k, p in self.table.items() if p.computed and k not in inputs}
        state = {**waiting, **inputs, **self.label_outputs(inputs, world)}
        if "project" in self.table and "project" not in inputs and world.project:
            state["project"] = world.project
        return {**state, **(self.planned(inputs, world) if known(inputs) else {})}

    def mark(self, state: Values) -> Values:
        """The state with the values that the provider itself calls secret marked as such."""
        marked = dict(state)
        for name in ("effectiveLabels", "pulumiLabels"):
            if name in marked:
                marked[name] = Sensitive(marked[name])
        for name, prop in self.table.items():
            if prop.sensitive and marked.get(name) is not None:
                marked[name] = Sensitive(marked[name])
        return marked

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        """Raises CloudError where the name is in use. (IAM members are merged instead.)"""
        if record is not None:
            raise already_exists(self.title(inputs, world))


def _holds_immutable(table: dict[str, Property], block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    return any(
        prop.force_new or (prop.block and _holds_immutable(prop.fields, block[name]))
        for name, prop in table.items()
        if not empty(block.get(name))  # pyright: ignore[reportUnknownMemberType]
    )


def _last(value: Any) -> str:
    return str(value).rstrip("/").rsplit("/", 1)[-1]


def number(*seed: str, digits: int = 18) -> str:
    """A number as Google's ids are, made from the seed (or from nothing, at random)."""
    text = "/".join(seed) if seed else uuid.uuid4().hex
    return str(10 ** (digits - 1) + int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10**17)[
        :digits
    ]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def must_exist(world: World, token: str, id_: str, message: str) -> Record:
    """The resource that another one refers to. Raises CloudError (404) where it is absent."""
    record = world.store.get(token, id_)
    if record is None:
        raise CloudError(f"googleapi: Error 404: {message}, notFound")
    return record
