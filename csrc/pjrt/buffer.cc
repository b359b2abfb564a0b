#include <array>

#include "pjrt/arguments.h"
#include "pjrt/client.h"
#include "pjrt/element_type.h"

namespace torch_tpu::pjrt {

Buffer& Buffer::operator=(Buffer&& o) noexcept {
  if (this != &o) {
    this->~Buffer();
    new (this) Buffer(std::move(o));
  }
  return *this;
}

Buffer::~Buffer() {
  if (buffer_ == nullptr || abandoned()) return;
  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_Buffer_Destroy_Args> args(plugin);
  args->buffer = buffer_;
  (void)call(plugin, plugin.api()->PJRT_Buffer_Destroy, args);
}

Event Buffer::ready_event() const {
  if (buffer_ == nullptr) return {};
  if (abandoned()) return Event::failed(abandoned_error());
  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_Buffer_ReadyEvent_Args> args(plugin);
  args->buffer = buffer_;
  if (Status status = call(plugin, plugin.api()->PJRT_Buffer_ReadyEvent, args); !status.ok())
    return Event::failed(status.error());
  return Event(&plugin, args->event);
}

bool Buffer::deleted() const {
  if (buffer_ == nullptr || abandoned()) return true;
  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_Buffer_IsDeleted_Args> args(plugin);
  args->buffer = buffer_;
  return !call(plugin, plugin.api()->PJRT_Buffer_IsDeleted, args).ok() || args->is_deleted;
}

Result<const void*> Buffer::host_pointer() const {
  if (abandoned()) return abandoned_error();
  if (buffer_ == nullptr || !client_->host_readable())
    return Error{ErrorCode::kUnavailable, "this engine's buffers cannot be read in place"};
  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args> args(plugin);
  args->buffer = buffer_;
  Status status = call(plugin, plugin.api()->PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args);
  if (!status.ok()) return status.error();
  return static_cast<const void*>(args->device_memory_ptr);
}

Result<Event> Buffer::to_host(void* destination, size_t bytes) const {
  if (abandoned()) return abandoned_error();
  if (buffer_ == nullptr) return Error{ErrorCode::kInternal, "copy to host: the buffer is empty"};
  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_Buffer_Dimensions_Args> dims(plugin);
  dims->buffer = buffer_;
  if (Status status = call(plugin, plugin.api()->PJRT_Buffer_Dimensions, dims); !status.ok()) return status.error();
  Arguments<PJRT_Buffer_ElementType_Args> type(plugin);
  type->buffer = buffer_;
  if (Status status = call(plugin, plugin.api()->PJRT_Buffer_ElementType, type); !status.ok()) return status.error();
  size_t expected = static_cast<size_t>(byte_size(dtype_of(type->type)));
  for (size_t i = 0; i < dims->num_dims; ++i) expected *= static_cast<size_t>(dims->dims[i]);
  if (expected != bytes)
    return Error{ErrorCode::kInternal, "copy to host: wrong size, got <" + std::to_string(bytes) +
                                           "> bytes, expected <" + std::to_string(expected) + ">"};
  if (expected == 0) return Event();

  // Without a layout the plugin writes the device's own dimension order.
  constexpr size_t kMaxRank = 64;
  std::array<int64_t, kMaxRank> minor_to_major;
  if (dims->num_dims > kMaxRank) return Error{ErrorCode::kNotImplemented, "copy to host: more than 64 dimensions"};
  for (size_t i = 0; i < dims->num_dims; ++i) minor_to_major[i] = static_cast<int64_t>(dims->num_dims - 1 - i);
  Arguments<PJRT_Buffer_MemoryLayout> layout(plugin);
  layout->type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout->tiled.struct_size = sizeof(PJRT_Buffer_MemoryLayout_Tiled);
  layout->tiled.minor_to_major = minor_to_major.data();
  layout->tiled.minor_to_major_size = dims->num_dims;

  Arguments<PJRT_Buffer_ToHostBuffer_Args> args(plugin);
  args->src = buffer_;
  args->host_layout = layout.get();
  args->dst = destination;
  args->dst_size = bytes;
  if (Status status = call(plugin, plugin.api()->PJRT_Buffer_ToHostBuffer, args); !status.ok()) return status.error();
  return Event(&plugin, args->event);
}

Result<Buffer> Buffer::copy_to_device(int device) const {
  if (abandoned()) return abandoned_error();
  if (buffer_ == nullptr) return Error{ErrorCode::kInternal, "copy to device: the buffer is empty"};
  if (device < 0 || device >= client_->device_count())
    return Error{ErrorCode::kInvalidArgument, "copy to device: there is no device <" + std::to_string(device) + ">"};
  const Plugin& plugin = client_->plugin();
  const auto function = TORCH_TPU_PJRT_OPTIONAL(plugin, PJRT_Buffer_CopyToDevice);
  if (!function) return missing_function("PJRT_Buffer_CopyToDevice");
  Arguments<PJRT_Buffer_CopyToDevice_Args> args(plugin);
  args->buffer = buffer_;
  args->dst_device = client_->device(device);
  if (Status status = call(plugin, function, args); !status.ok()) return status.error();
  return Buffer(client_, args->dst_buffer);
}

Result<int64_t> Buffer::device_bytes() const {
  if (abandoned()) return abandoned_error();
  if (buffer_ == nullptr) return int64_t{0};
  const Plugin& plugin = client_->plugin();
  Arguments<PJRT_Buffer_OnDeviceSizeInBytes_Args> args(plugin);
  args->buffer = buffer_;
  if (Status status = call(plugin, plugin.api()->PJRT_Buffer_OnDeviceSizeInBytes, args); !status.ok())
    return status.error();
  return static_cast<int64_t>(args->on_device_size_in_bytes);
}

}  // namespace torch_tpu::pjrt
