// torch.tpu.set_sync_debug_mode: tells the user which of his lines made the host wait for the device.
#pragma once

namespace torch_tpu::aten {

enum class SyncDebugMode { kDefault, kWarn, kError };
SyncDebugMode sync_debug_mode();
void set_sync_debug_mode(SyncDebugMode mode);

// Called by every path that brings device data to the host (or waits for the device) because an op asked for it.
// Warns or raises RuntimeError, naming the op and the user's Python line; costs one relaxed load when off.
// Takes the GIL when on: hold no lock.
void note_host_read(const char* op);

}  // namespace torch_tpu::aten
