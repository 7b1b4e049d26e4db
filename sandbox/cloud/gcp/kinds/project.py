"""Project-wide things: APIs, the registry, secrets, logs, monitoring, budgets."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from sandbox.cloud.gcp.check import Rules, matches
from sandbox.cloud.gcp.errors import CloudError, already_exists, bad_request
from sandbox.cloud.gcp.store import Record, Values
from sandbox.cloud.gcp.world import World
from sandbox.cloud.registry import Registry

from .base import Kind, must_exist, now, number

SECRET = "gcp:secretmanager/secret:Secret"


def valid_json(value: Any) -> str | None:
    try:
        json.loads(value)
    except ValueError as error:
        return f'"{{name}}" contains an invalid JSON: {str(error).replace("{", "{{")}'
    return None


class Service(Kind):
    token = "gcp:projects/service:Service"
    rules: ClassVar[Rules] = {
        "service": matches(
            r"(?=.{4,253}$)[a-z0-9-]+(?:\.[a-z0-9-]+)+",
            "expected {name} to be a domain name, such as compute.googleapis.com",
        )
    }

    def identity(self, inputs: Values, world: World) -> str:
        return f"{world.of(inputs)}/{inputs['service']}"

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        pass  # enabling an enabled API is no error

    def created(self, record: Record, world: World) -> None:
        project = world.of(record.inputs)
        enabled = world.services(project) or []
        if (service := record.inputs["service"]) not in enabled:
            world.set_services(project, [*enabled, service])

    def deleting(self, record: Record, world: World) -> None:
        if record.state.get("disableOnDestroy"):
            project = world.of(record.inputs)
            left = [s for s in world.services(project) or [] if s != record.inputs["service"]]
            world.set_services(project, left)


class ServiceIdentity(Kind):
    token = "gcp:projects/serviceIdentity:ServiceIdentity"

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.of(inputs)}/services/{inputs['service']}"

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        pass

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        agent = str(inputs["service"]).split(".")[0]
        project = world.number(world.of(inputs))
        email = f"service-{project}@gcp-sa-{agent}.iam.gserviceaccount.com"
        return {"email": email, "member": f"serviceAccount:{email}"}


class Repository(Kind):
    token = "gcp:artifactregistry/repository:Repository"
    service = "artifactregistry.googleapis.com"
    formats = ("DOCKER", "MAVEN", "NPM", "APT", "YUM", "PYTHON", "GO", "GENERIC", "KFP")

    def identity(self, inputs: Values, world: World) -> str:
        location = world.location(inputs)
        name = inputs["repositoryId"]
        return f"projects/{world.of(inputs)}/locations/{location}/repositories/{name}"

    def title(self, inputs: Values, world: World) -> str:
        return "the repository already exists"

    def accept(self, inputs: Values, world: World) -> None:
        if str(inputs["format"]).upper() not in self.formats:
            raise bad_request(f"Invalid repository format: {inputs['format']}")
        self.check_labels(inputs)

    def same(self, path: str, old: Any, new: Any) -> bool:
        return path == "format" and str(old).upper() == str(new).upper()

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        project, location = world.of(inputs), world.location(inputs)
        name = inputs["repositoryId"]
        host = f"{location}-{str(inputs['format']).lower()}.pkg.dev"
        return {
            "format": str(inputs["format"]).upper(),
            "location": location,
            "name": name,
            "registryUri": f"{host}/{project}/{name}",
            "updateTime": now(),
        }

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"createTime": now()}

    def deleting(self, record: Record, world: World) -> None:
        if world.folder is not None:
            Registry(world.folder.parent).remove(record.id)


class Secret(Kind):
    token = SECRET
    service = "secretmanager.googleapis.com"
    replaced = frozenset({"replication"})

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.of(inputs)}/secrets/{inputs['secretId']}"

    def title(self, inputs: Values, world: World) -> str:
        project = world.number(world.of(inputs))
        return f"Secret [projects/{project}/secrets/{inputs['secretId']}] already exists."

    def accept(self, inputs: Values, world: World) -> None:
        self.check_labels(inputs)

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        project = world.number(world.of(inputs))
        return {"name": f"projects/{project}/secrets/{inputs['secretId']}"}

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"createTime": now()}


class SecretVersion(Kind):
    token = "gcp:secretmanager/secretVersion:SecretVersion"
    service = "secretmanager.googleapis.com"
    links = frozenset({"secret"})

    def secret(self, inputs: Values, world: World) -> str:
        project = world.of(inputs)
        name = str(inputs["secret"]).rsplit("/", 1)[-1]
        return f"projects/{project}/secrets/{name}"

    def identity(self, inputs: Values, world: World) -> str:
        secret = self.secret(inputs, world)
        record = must_exist(world, SECRET, secret, f"Secret [{secret}] not found.")
        latest = record.notes.get("versions", 0) + 1
        return f"{record.state['name']}/versions/{latest}"

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        pass

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        secret = self.secret(inputs, world)
        return {"name": id_, "secret": secret, "version": id_.rsplit("/", 1)[-1]}

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"createTime": now()}

    def created(self, record: Record, world: World) -> None:
        secret = world.store.get(SECRET, self.secret(record.inputs, world))
        assert secret is not None
        secret.notes["versions"] = int(record.state["version"])
        world.store.put(secret)


class LogMetric(Kind):
    token = "gcp:logging/metric:Metric"
    service = "logging.googleapis.com"

    def identity(self, inputs: Values, world: World) -> str:
        return str(inputs["name"])

    def title(self, inputs: Values, world: World) -> str:
        return f"Metric {inputs['name']} already exists"


class LogBucket(Kind):
    token = "gcp:logging/projectBucketConfig:ProjectBucketConfig"
    service = "logging.googleapis.com"

    def identity(self, inputs: Values, world: World) -> str:
        project = str(inputs["project"]).removeprefix("projects/")
        return f"projects/{project}/locations/{inputs['location']}/buckets/{inputs['bucketId']}"

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        return {"name": id_, "lifecycleState": "ACTIVE"}


class Numbered(Kind):
    """Monitoring's things: named by a number that Google makes up, so that none is ever taken."""

    service = "monitoring.googleapis.com"
    collection = ""

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.of(inputs)}/{self.collection}/{number()}"

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        pass

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        return {"name": id_} if "name" in self.table else {}


class Dashboard(Numbered):
    token = "gcp:monitoring/dashboard:Dashboard"
    rules: ClassVar[Rules] = {"dashboardJson": valid_json}

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.number(world.of(inputs))}/dashboards/{number()}"

    def same(self, path: str, old: Any, new: Any) -> bool:
        return path == "dashboardJson" and bool(old) and json.loads(old) == json.loads(new)


class NotificationChannel(Numbered):
    token = "gcp:monitoring/notificationChannel:NotificationChannel"
    collection = "notificationChannels"


class AlertPolicy(Numbered):
    token = "gcp:monitoring/alertPolicy:AlertPolicy"
    collection = "alertPolicies"

    def accept(self, inputs: Values, world: World) -> None:
        for channel in inputs.get("notificationChannels") or []:
            token = "gcp:monitoring/notificationChannel:NotificationChannel"
            must_exist(world, token, channel, f"Notification channel {channel} not found")

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"creationRecords": [{"mutateTime": now(), "mutatedBy": "owner@example.com"}]}


class Budget(Numbered):
    token = "gcp:billing/budget:Budget"
    service = "billingbudgets.googleapis.com"

    def identity(self, inputs: Values, world: World) -> str:
        account = inputs["billingAccount"]
        if not str(account).strip():
            raise CloudError("googleapi: Error 400: a budget needs a billing account, badRequest")
        return f"billingAccounts/{account}/budgets/{number()}"

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        if record is not None:
            raise already_exists("the budget already exists")
