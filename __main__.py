"""Gemma fine-tuning on GKE: from an empty project to runs on reserved GPUs, top to bottom."""

import pulumi

import workloads
from infra import outputs
from infra.cluster import Cluster, ClusterArgs
from infra.guard import Guard, unlocking, watch
from infra.identity import Identity, IdentityArgs
from infra.image import TrainerImage, TrainerImageArgs
from infra.namespace import Namespace, NamespaceArgs
from infra.network import Network, NetworkArgs
from infra.observability import Observability, ObservabilityArgs
from infra.ray_operator import Kinds, kinds_for
from infra.registry import Registry, RegistryArgs
from infra.secrets import HuggingFaceToken, HuggingFaceTokenArgs, require_token
from infra.services import Services
from infra.settings import load_settings
from infra.storage import Storage, StorageArgs

NAMESPACE, SERVICE_ACCOUNT = "gemma", "trainer"

# All that can be wrong with the configuration is said here, before anything exists.
settings = load_settings(rules=(workloads.problems,))
require_token(settings)
project, region, labels = settings.project, settings.region, settings.all_labels

# Google's APIs: each resource below brings its own.
everything = watch()
Services("services", project)

# Where results and images live, and who may touch them.
storage = Storage(
    "storage",
    StorageArgs(
        project=project,
        location=region,
        name=settings.bucket_name,
        labels=labels,
        settings=settings.bucket,
    ),
)
registry = Registry(
    "registry",
    RegistryArgs(project=project, location=region, repository=settings.name, labels=labels),
)
identity = Identity(
    "identity",
    IdentityArgs(
        project=project,
        name=settings.name,
        bucket=storage.runs.name,
        builds=storage.builds.name,
        sources=settings.bucket.sources,
        location=region,
        repository=registry.repository.name,
    ),
)

# The image of both trainers. Its key is known at preview, and so are the ids of the runs.
image = TrainerImage(
    "trainer",
    TrainerImageArgs(
        repository=registry.repository.repository_id,
        project=project,
        region=region,
        service_account=identity.build.email,
        source_bucket=storage.builds.name,
        uri=settings.image.uri,
    ),
    pulumi.ResourceOptions(depends_on=identity.bindings["build"]),
)
runs = workloads.plan(settings, image.key)

# The cluster, in a network of its own.
network = Network(
    "network",
    NetworkArgs(project=project, region=region, name=settings.name, settings=settings.network),
)
cluster = Cluster(
    "cluster",
    ClusterArgs(
        project=project,
        region=region,
        name=settings.name,
        minimum_version=workloads.minimum_version(settings),
        network=network.network,
        subnetwork=network.subnetwork,
        pods_range=network.pods_range,
        services_range=network.services_range,
        private_nodes=settings.network.private_nodes,
        node_account=identity.nodes.email,
        sync_secrets=settings.hugging_face_secret is not None,
        # `destroy` goes the other way round: no pod writes to the bucket while it is emptied.
        after=[*identity.bindings["nodes"], storage.runs],
        labels=labels,
        settings=settings.cluster,
    ),
)

# Inside the cluster: the runs' namespace, their identity and the Hugging Face token.
namespace = Namespace(
    "namespace",
    NamespaceArgs(
        project=project,
        namespace=NAMESPACE,
        service_account=SERVICE_ACCOUNT,
        account=identity.trainer,
        cluster=cluster.cluster,
        provider=cluster.provider,
    ),
)
kinds = Kinds(
    "kinds",
    cluster=cluster.cluster.id,
    kubeconfig=cluster.kubeconfig,
    kinds=kinds_for(settings),
)
inside = pulumi.ResourceOptions(
    provider=cluster.provider,
    depends_on=[namespace, kinds],
    deleted_with=cluster.cluster,
)
token = HuggingFaceToken(
    "hugging-face-token",
    HuggingFaceTokenArgs(
        project=project,
        namespace=namespace.namespace.metadata.name,
        service_account=SERVICE_ACCOUNT,
        account=identity.trainer,
        token=settings.hugging_face_token,
        secret=settings.hugging_face_secret,
        opts=inside,
    ),
)
workloads.isolate(namespace.namespace.metadata.name, inside)

# The runs themselves.
summaries = workloads.deploy(
    runs,
    workloads.Surroundings(
        image=image.reference,
        image_key=image.key,
        bucket=storage.runs.name,
        project=project,
        namespace=namespace.namespace.metadata.name,
        service_account=SERVICE_ACCOUNT,
        token_secret=token.secret_name,
    ),
    pulumi.ResourceOptions.merge(
        inside, pulumi.ResourceOptions(depends_on=[*identity.bindings["trainer"], *token.ready])
    ),
)

# What to watch, where to look, and what keeps production from being destroyed by mistake.
observability = Observability(
    "observability",
    ObservabilityArgs(
        project=project,
        name=settings.name,
        cluster=settings.name,
        namespace=NAMESPACE,
        dashboard=settings.dashboard,
        alerts=settings.alerts,
        labels=labels,
    ),
)
Guard("guard", unlocking(settings), after=everything)
outputs.export(
    settings,
    cluster=cluster,
    namespace=NAMESPACE,
    bucket=storage.runs.name,
    image=image.reference,
    runs=summaries,
    dashboard=observability.dashboard,
)
