"""Compiled kernels in ``torch.compiler.save_cache_artifacts`` and ``load_cache_artifacts``."""

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

TYPE = "spyre_kernel"


class SpyreKernelArtifact(CacheArtifact):
    """An entry of the kernel cache."""

    def populate_cache(self) -> None:
        from torch_spyre.backend import kernel_cache

        kernel_cache.add_entry(self.key, self.content)

    @staticmethod
    def type() -> str:
        return TYPE


def register() -> None:
    """Make PyTorch know the type, once; before the first artifacts are loaded."""
    if TYPE not in CacheArtifactFactory._artifact_types:
        CacheArtifactFactory.register(SpyreKernelArtifact)


def record(name: str, content: bytes) -> None:
    """What a compiled graph of this process needs; kept once, however often it is recorded."""
    CacheArtifactManager.record_artifact(TYPE, name, content)
