"""What is pinned: each tool, its version, its ways, and the sets of tools that commands need."""

from __future__ import annotations

from tools.recipe import Build, Files, Main, OnPath, Release, Tool


def _kubernetes(program: str, on_path: OnPath) -> Tool:
    folder = "https://dl.k8s.io/v{version}/bin/{os}/{arch}/" + program
    return Tool(
        name=program,
        version="1.35.4",
        programs=(program,),
        on_path=on_path,
        release=Release(folder, folder + ".sha256"),
        build=Build(
            mains={"tools": (Main(f"k8s.io/kubernetes/cmd/{program}", program),)},
            # Unstamped, the API server calls itself v0.0.0-master, which clients cannot compare.
            stamps=(
                "k8s.io/component-base/version.gitVersion=v{version}",
                "k8s.io/component-base/version.gitMajor={major}",
                "k8s.io/component-base/version.gitMinor={minor}",
            ),
        ),
    )


# The three servers must be of one minor version; a kubectl reads what an older or newer one wrote.
_SERVER = {"at_least": (1, 35), "below": (1, 36)}
_GITHUB = "https://github.com/"
_SDK = "github.com/pulumi/pulumi/sdk/v3"
_KUBERNETES_PLUGIN = "github.com/pulumi/pulumi-kubernetes/provider/v4"

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="etcd",
        version="3.6.16",
        programs=("etcd",),
        on_path=OnPath(("etcd", "--version"), (3, 6), (3, 7)),  # 3.5 lacks what 1.35 asks for
        release=Release(
            _GITHUB
            + "etcd-io/etcd/releases/download/v{version}/etcd-v{version}-{os}-{arch}.tar.gz",
            _GITHUB + "etcd-io/etcd/releases/download/v{version}/SHA256SUMS",
        ),
        build=Build(mains={"tools": (Main("go.etcd.io/etcd/server/v3", "etcd"),)}),
    ),
    _kubernetes("kube-apiserver", OnPath(("kube-apiserver", "--version"), **_SERVER)),
    _kubernetes("kube-scheduler", OnPath(("kube-scheduler", "--version"), **_SERVER)),
    _kubernetes(
        "kube-controller-manager", OnPath(("kube-controller-manager", "--version"), **_SERVER)
    ),
    Tool(
        name="pulumi",
        version="3.274.1",
        programs=(
            "pulumi",
            "pulumi-language-python",
            "pulumi-language-python-exec",
            "pulumi-resource-pulumi-python",  # starts pulumi.dynamic providers
            "pulumi-analyzer-policy-python",  # starts policy packs
        ),
        # The SDK speaks to older engines of its major version; 3.250 is the oldest that was tried.
        on_path=OnPath(("pulumi", "version"), (3, 250), (4,)),
        release=Release(
            "https://get.pulumi.com/releases/sdk/pulumi-v{version}-{os}-{x64}.tar.gz",
            _GITHUB + "pulumi/pulumi/releases/download/v{version}/pulumi-{version}-checksums.txt",
        ),
        build=Build(
            mains={
                "tools": (Main("github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", "pulumi"),),
                # sdk v3.68.0 is the newest with the Python language host inside; the engine and
                # the SDK for Python speak its protocol. It can go when the host is a module again.
                "python-host": (
                    Main(f"{_SDK}/python/cmd/pulumi-language-python", "pulumi-language-python"),
                ),
            },
            files={
                "tools": (
                    Files(_SDK, "python/cmd", ("pulumi-language-python-exec",), "bin"),
                    Files(_SDK, "python/dist", ("pulumi-resource-pulumi-python",), "bin"),
                ),
                "python-host": (
                    Files(_SDK, "python/dist", ("pulumi-analyzer-policy-python",), "bin"),
                ),
            },
            stamps=("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",),
        ),
    ),
    Tool(
        name="pulumi-resource-kubernetes",
        version="4.34.2",  # the SDK's: the engine asks for a plugin of the SDK's version
        programs=("pulumi-resource-kubernetes",),
        release=Release(
            "https://get.pulumi.com/releases/plugins/"
            "pulumi-resource-kubernetes-v{version}-{os}-{arch}.tar.gz",
            _GITHUB + "pulumi/pulumi-kubernetes/releases/download/v{version}/"
            "pulumi-kubernetes_{version}_checksums.txt",
        ),
        build=Build(
            mains={
                "kubernetes-plugin": (
                    Main("./pulumi-resource-kubernetes", "pulumi-resource-kubernetes"),
                )
            },
            embed={
                "kubernetes-plugin": (
                    Files(
                        _KUBERNETES_PLUGIN,
                        "cmd/pulumi-resource-kubernetes",
                        ("schema.json", "terraform-mapping.json"),
                        "pulumi-resource-kubernetes",
                    ),
                )
            },
            stamps=("main.version={version}",),
        ),
    ),
    Tool(
        name="fake-gcs-server",
        version="1.56.1",
        programs=("fake-gcs-server",),  # prints no version, so one on PATH is not used
        release=Release(
            _GITHUB + "fsouza/fake-gcs-server/releases/download/v{version}/"
            "fake-gcs-server_{version}_{Os}_{arch}.tar.gz",
            _GITHUB + "fsouza/fake-gcs-server/releases/download/v{version}/checksums.txt",
        ),
        build=Build(
            mains={"tools": (Main("github.com/fsouza/fake-gcs-server", "fake-gcs-server"),)}
        ),
    ),
    Tool(
        name="kuberay-operator",
        version="1.5.0",
        programs=("kuberay-operator",),  # released as a container image only
        build=Build(
            mains={
                "tools": (Main("github.com/ray-project/kuberay/ray-operator", "kuberay-operator"),)
            },
            files={
                "tools": (
                    Files(
                        "github.com/ray-project/kuberay/ray-operator",
                        "config/crd/bases",
                        ("*.yaml",),
                        "share/kuberay/crds",
                    ),
                )
            },
        ),
        share=("kuberay",),
    ),
    Tool(
        name="kwok",
        version="0.8.0",
        programs=("kwok",),  # its releases have no checksums
        build=Build(
            mains={"kwok": (Main("sigs.k8s.io/kwok/cmd/kwok", "kwok"),)},
            # Without stages kwok stops with "no stages found".
            files={
                "kwok": (
                    Files(
                        "sigs.k8s.io/kwok",
                        "kustomize/stage/node/fast",
                        ("node-*.yaml",),
                        "share/kwok",
                    ),
                    Files(
                        "sigs.k8s.io/kwok",
                        "kustomize/stage/pod/fast",
                        ("pod-*.yaml",),
                        "share/kwok",
                    ),
                )
            },
        ),
        share=("kwok",),
    ),
    _kubernetes("kubectl", OnPath(("kubectl", "version", "--client"), (1, 28), (2,))),
    Tool(
        name="actionlint",
        version="1.7.12",
        programs=("actionlint",),
        on_path=OnPath(("actionlint", "--version"), (1, 7, 7), (2,)),
        release=Release(
            _GITHUB + "rhysd/actionlint/releases/download/v{version}/"
            "actionlint_{version}_{os}_{arch}.tar.gz",
            _GITHUB + "rhysd/actionlint/releases/download/v{version}/"
            "actionlint_{version}_checksums.txt",
        ),
        build=Build(
            mains={
                "actionlint": (Main("github.com/rhysd/actionlint/cmd/actionlint", "actionlint"),)
            }
        ),
    ),
)

BY_NAME = {tool.name: tool for tool in TOOLS}

PREVIEW = ("pulumi", "pulumi-resource-kubernetes")
DEMO = (
    "etcd",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    *PREVIEW,
    "fake-gcs-server",
    "kuberay-operator",
)
SETS = {"preview": PREVIEW, "demo": DEMO, "test": (*DEMO, "kwok", "kubectl", "actionlint")}


def select(names: tuple[str, ...]) -> tuple[Tool, ...]:
    """The tools that the names of tools and sets stand for, in catalog order.

    Raises ValueError with what is known, when a name is not.
    """
    wanted: set[str] = set()
    for name in names or ("demo",):
        if name not in SETS and name not in BY_NAME:
            raise ValueError(
                f"no tool or set is called {name!r}; sets: {', '.join(SETS)}; "
                f"tools: {', '.join(BY_NAME)}"
            )
        wanted.update(SETS.get(name, (name,)))
    return tuple(tool for tool in TOOLS if tool.name in wanted)
