"""Real FSDP2 on CPUs in the sandbox's containers, for the trainer's unchanged code.

Accelerate takes FSDP for GPUs only: with `use_cpu` it drops the plugin and sets up plain DDP. This
hook, which Python imports at start since it is first on PYTHONPATH, gives the state its plugin
back. It is active only where ACCELERATE_USE_CPU is true, and waits until accelerate is imported.
"""

import os
import sys

if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes"):
    import importlib.abc
    import importlib.util

    _TARGET = "accelerate.state"

    def _enable(module):
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

    class _Loader(importlib.abc.Loader):
        def __init__(self, loader):
            self._loader = loader

        def create_module(self, spec):
            return self._loader.create_module(spec)

        def exec_module(self, module):
            self._loader.exec_module(module)
            _enable(module)

    class _Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name != _TARGET:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader)
            return spec

    sys.meta_path.insert(0, _Finder())
