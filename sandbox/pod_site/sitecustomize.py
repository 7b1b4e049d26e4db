"""What the sandbox changes in the containers' libraries; never in the trainers' code.

Python imports this at start, since its folder is first on PYTHONPATH. Each change waits until its
module is imported, so that other processes pay nothing.

accelerate.state: real FSDP2 on CPUs. Accelerate takes FSDP for GPUs only: with `use_cpu` it drops
the plugin and sets up plain DDP. Where ACCELERATE_USE_CPU is true, its state gets the plugin back.

trl.trainer.utils: the LM head on the trained tokens alone. TRL does so where Triton is, and scores
every position elsewhere, so that no compiler meets a new shape (nothing is compiled here). With
Gemma's 262,144 tokens the head is most of a small model: 2.6 of 3.6 parts of a step's work.

ray._private.services: Ray gives a node's raylet 30 s to register (hard-coded in
ray/_private/node.py), which two cores that also load another run's libraries exceed.
"""

import importlib.abc
import importlib.util
import os
import sys
import time

RAYLET_SECONDS = 180


def _fsdp_on_cpu(module):
    from accelerate.utils.dataclasses import DistributedType

    original = module.AcceleratorState.__init__

    def initialize(self, *args, **kwargs):
        original(self, *args, **kwargs)
        plugin = kwargs.get("fsdp_plugin")
        if plugin is None or self.distributed_type != DistributedType.MULTI_CPU:
            return
        if self._mixed_precision != "no":
            plugin.set_mixed_precision(self._mixed_precision)
        self.fsdp_plugin = plugin
        self.distributed_type = DistributedType.FSDP
        module.PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    module.AcceleratorState.__init__ = initialize


def _patient_raylet(module):
    original = module.get_node

    def get_node(*args, **kwargs):
        deadline = time.monotonic() + RAYLET_SECONDS
        while True:
            try:
                return original(*args, **kwargs)
            except RuntimeError:  # not registered yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    module.get_node = get_node


def _trained_tokens_alone(module):
    module._use_triton = lambda device: True  # asked there for this choice and no other


CHANGES = {
    "ray._private.services": _patient_raylet,
    "trl.trainer.utils": _trained_tokens_alone,
}
if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes"):
    CHANGES["accelerate.state"] = _fsdp_on_cpu


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the usual finders find a module, and has its change made once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        change = CHANGES.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            change(module)

        spec.loader.exec_module = execute_and_change
        return spec


sys.meta_path.insert(0, _Finder())
