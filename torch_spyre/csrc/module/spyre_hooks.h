// What PyTorch asks of an accelerator backend: availability, devices, generators, pinned memory.
#pragma once

namespace spyre {

/// Registers the hooks; called once, when the module is loaded. Starts nothing.
void register_hooks();

}  // namespace spyre
