#include "pjrt/ffi.h"

#include <pjrt_c_api.h>

#include <array>
#include <atomic>
#include <complex>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "pjrt/arguments.h"
#include "pjrt/ffi_abi.h"

namespace torch_tpu::pjrt {
namespace {

namespace abi = ffi_abi;

// Note [Handler slots]
// The interface calls a plain function without user data, so every name needs a function of its own: a fixed set of
// instantiations, each of which looks into its slot. Slots are never freed, because a program may call them at any
// time.
constexpr size_t kSlots = 128;

struct Slot {
  std::string name;  // the plugin keeps a pointer to it
  const Plugin* plugin = nullptr;
  std::shared_ptr<const FfiHandler> handler;  // read and written with atomic_load and atomic_store
  std::atomic<bool> greeted{false};           // the plugin has asked for our version
};

struct Slots {
  std::mutex mutex;
  size_t used = 0;
  std::array<Slot, kSlots> slots;
};
Slots& slots() {
  static Slots* const instance = new Slots;
  return *instance;
}

// Numbers of XLA's PrimitiveType.
DType dtype_of_ffi(int type) {
  switch (type) {
    case 1:
      return DType::kBool;
    case 2:
      return DType::kI8;
    case 3:
      return DType::kI16;
    case 4:
      return DType::kI32;
    case 5:
      return DType::kI64;
    case 6:
      return DType::kU8;
    case 7:
      return DType::kU16;
    case 8:
      return DType::kU32;
    case 9:
      return DType::kU64;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF32;
    case 12:
      return DType::kF64;
    case 15:
      return DType::kC64;
    case 16:
      return DType::kBF16;
    case 18:
      return DType::kC128;
    case 19:
      return DType::kF8E5M2;
    case 20:
      return DType::kF8E4M3FN;
    case 24:
      return DType::kF8E5M2FNUZ;
    case 25:
      return DType::kF8E4M3FNUZ;
    case 33:
      return DType::kF8E8M0FNU;
    default:
      return DType::kInvalid;
  }
}

template <typename T>
T load(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

bool read_number(DType dtype, const void* data, size_t index, int64_t& integer, double& real) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      integer = load<uint8_t>(data, index);
      return true;
    case DType::kI8:
      integer = load<int8_t>(data, index);
      return true;
    case DType::kI16:
      integer = load<int16_t>(data, index);
      return true;
    case DType::kU16:
      integer = load<uint16_t>(data, index);
      return true;
    case DType::kI32:
      integer = load<int32_t>(data, index);
      return true;
    case DType::kU32:
      integer = load<uint32_t>(data, index);
      return true;
    case DType::kI64:
      integer = load<int64_t>(data, index);
      return true;
    case DType::kU64:
      integer = static_cast<int64_t>(load<uint64_t>(data, index));
      return true;
    case DType::kF32:
      real = load<float>(data, index);
      return false;
    default:
      real = load<double>(data, index);
      return false;
  }
}

bool is_number(DType dtype) {
  return is_bool(dtype) || is_integer(dtype) || dtype == DType::kF32 || dtype == DType::kF64;
}

Error unreadable(const std::string& what) {
  return Error{ErrorCode::kNotImplemented, "custom call: cannot read " + what};
}

Status read_array(const std::string& name, int type, const void* data, size_t size, bool scalar, FfiCall& call) {
  const DType dtype = dtype_of_ffi(type);
  if (!is_number(dtype)) return unreadable("attribute " + name);
  std::vector<int64_t> integers(size);
  std::vector<double> reals(size);
  bool integral = !is_float(dtype);
  for (size_t i = 0; i < size; ++i) integral = read_number(dtype, data, i, integers[i], reals[i]);
  if (integral && scalar)
    call.attributes[name] = integers[0];
  else if (integral)
    call.attributes[name] = std::move(integers);
  else if (scalar)
    call.attributes[name] = reals[0];
  else
    call.attributes[name] = std::move(reals);
  return {};
}

// Attributes of dictionaries are named "outer.inner".
Status read_attributes(const abi::Attributes& attributes, const std::string& prefix, FfiCall& call) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const std::string name = prefix + std::string(attributes.names[i]->data, attributes.names[i]->size);
    const void* value = attributes.values[i];
    Status status;
    switch (attributes.types[i]) {
      case abi::kString: {
        const auto* text = static_cast<const abi::ByteSpan*>(value);
        call.attributes[name] = std::string(text->data, text->size);
        break;
      }
      case abi::kScalar: {
        const auto* scalar = static_cast<const abi::Scalar*>(value);
        status = read_array(name, scalar->dtype, scalar->value, 1, true, call);
        break;
      }
      case abi::kArray: {
        const auto* array = static_cast<const abi::Array*>(value);
        status = read_array(name, array->dtype, array->data, array->size, false, call);
        break;
      }
      case abi::kDictionary:
        status = read_attributes(*static_cast<const abi::Attributes*>(value), name + ".", call);
        break;
      default:
        status = unreadable("attribute " + name);
    }
    if (!status.ok()) return status;
  }
  return {};
}

Status read_buffers(const abi::Arguments& list, std::vector<FfiBuffer>& buffers) {
  for (int64_t i = 0; i < list.size; ++i) {
    if (list.types[i] != abi::kBufferArgument) return unreadable("operand " + std::to_string(i));
    const auto* buffer = static_cast<const abi::Buffer*>(list.values[i]);
    const DType dtype = dtype_of_ffi(buffer->dtype);
    if (dtype == DType::kInvalid) return unreadable("the element type of operand " + std::to_string(i));
    buffers.push_back({dtype, Shape(buffer->dims, buffer->dims + buffer->rank), buffer->data});
  }
  return {};
}

Status serve(const Slot& slot, const abi::CallFrame& frame) {
  FfiCall call;
  if (Status status = read_buffers(frame.arguments, call.arguments); !status.ok()) return status;
  if (Status status = read_buffers(frame.results, call.results); !status.ok()) return status;
  if (Status status = read_attributes(frame.attributes, "", call); !status.ok()) return status;
  const std::shared_ptr<const FfiHandler> handler = std::atomic_load(&slot.handler);
  return (*handler)(call);
}

int code_number(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOutOfMemory:
      return PJRT_Error_Code_RESOURCE_EXHAUSTED;
    case ErrorCode::kNotImplemented:
      return PJRT_Error_Code_UNIMPLEMENTED;
    case ErrorCode::kUnavailable:
      return PJRT_Error_Code_UNAVAILABLE;
    case ErrorCode::kInternal:
      return PJRT_Error_Code_INTERNAL;
    default:
      return PJRT_Error_Code_INVALID_ARGUMENT;
  }
}

// True if the frame only asked who we are.
bool introduce(Slot& slot, abi::CallFrame* frame) {
  if (!frame->extension_start || frame->extension_start->type != abi::kMetadataExtension) return false;
  abi::Metadata* metadata = reinterpret_cast<abi::MetadataExtension*>(frame->extension_start)->metadata;
  metadata->api_version.major = 0;
  metadata->api_version.minor = 1;
  slot.greeted.store(true);
  return true;
}

abi::Error* enter(size_t index, abi::CallFrame* frame) {
  Slot& slot = slots().slots[index];
  if (introduce(slot, frame) || frame->stage != abi::kExecuteStage) return nullptr;
  Status status;
  try {
    status = serve(slot, *frame);
  } catch (const std::exception& e) {
    status = Error{ErrorCode::kInternal, slot.name + ": " + e.what()};
  } catch (...) {
    status = Error{ErrorCode::kInternal, slot.name + ": unknown exception"};
  }
  if (status.ok()) return nullptr;
  abi::ErrorCreateArguments error{sizeof(abi::ErrorCreateArguments), nullptr, status.error().message.c_str(),
                                  code_number(status.error().code)};
  return frame->api->error_create(&error);
}

template <size_t kIndex>
abi::Error* handler(abi::CallFrame* frame) {
  return enter(kIndex, frame);
}

template <size_t... kIndices>
constexpr std::array<abi::Handler, sizeof...(kIndices)> make_handlers(std::index_sequence<kIndices...>) {
  return {handler<kIndices>...};
}
constexpr std::array<abi::Handler, kSlots> kHandlers = make_handlers(std::make_index_sequence<kSlots>());

// The third entry behind the extension's head; this header version has no declaration of it.
struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_id_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(abi::RegisterArguments*);
};

const FfiExtension* find_extension(const Plugin& plugin) {
  for (const PJRT_Extension_Base* e = plugin.api()->extension_start; e; e = e->next) {
    if (e->type != PJRT_Extension_Type_FFI || e->struct_size < sizeof(FfiExtension)) continue;
    const auto* extension = reinterpret_cast<const FfiExtension*>(e);
    return extension->register_handler ? extension : nullptr;
  }
  return nullptr;
}

template <typename T>
Result<T> attribute(const FfiCall& call, const std::string& name, const char* kind) {
  const auto it = call.attributes.find(name);
  const T* value = it == call.attributes.end() ? nullptr : std::get_if<T>(&it->second);
  if (!value) return Error{ErrorCode::kInvalidArgument, "custom call: expected attribute <" + name + "> to be " + kind};
  return *value;
}

}  // namespace

Result<int64_t> FfiCall::integer(const std::string& name) const {
  return attribute<int64_t>(*this, name, "an integer");
}
Result<double> FfiCall::real(const std::string& name) const { return attribute<double>(*this, name, "a float"); }
Result<std::string> FfiCall::text(const std::string& name) const {
  return attribute<std::string>(*this, name, "a string");
}
Result<std::vector<int64_t>> FfiCall::integers(const std::string& name) const {
  return attribute<std::vector<int64_t>>(*this, name, "an array of integers");
}

bool supports_ffi(const Plugin& plugin) { return find_extension(plugin) != nullptr; }

Status register_ffi(const Plugin& plugin, const std::string& name, FfiHandler handler) {
  const FfiExtension* extension = find_extension(plugin);
  if (!extension) return Error{ErrorCode::kNotImplemented, "the PJRT plugin has no foreign function interface"};
  auto shared = std::make_shared<const FfiHandler>(std::move(handler));
  Slots& all = slots();
  std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < all.used; ++i) {
    if (all.slots[i].plugin != &plugin || all.slots[i].name != name) continue;
    std::atomic_store(&all.slots[i].handler, std::move(shared));
    return {};
  }
  if (all.used == kSlots) return Error{ErrorCode::kInternal, "more than 128 foreign functions"};
  Slot& slot = all.slots[all.used];
  slot.name = name;
  slot.plugin = &plugin;
  slot.greeted.store(false);
  std::atomic_store(&slot.handler, std::move(shared));
  static constexpr char kPlatform[] = "HOST";
  abi::RegisterArguments args{sizeof(abi::RegisterArguments),
                              slot.name.data(),
                              slot.name.size(),
                              reinterpret_cast<void*>(kHandlers[all.used]),
                              kPlatform,
                              sizeof(kPlatform) - 1,
                              0};
  Status status;
  try {
    status = plugin.status(extension->register_handler(&args));
  } catch (...) {
    status = Error{ErrorCode::kInternal, "the PJRT plugin threw an exception"};
  }
  // A plugin that refuses says nothing; it just never asks for our version.
  if (status.ok() && !slot.greeted.load())
    status = Error{ErrorCode::kNotImplemented, "the PJRT plugin took no notice of <" + name + ">"};
  if (status.ok()) ++all.used;
  return status;
}

}  // namespace torch_tpu::pjrt
