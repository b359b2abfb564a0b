// CompileOptionsProto, written field by field: the wire format is stable and small, a protobuf library is neither.
#include <cstring>
#include <type_traits>

#include "pjrt/client.h"

namespace torch_tpu::pjrt {
namespace {

// Field numbers of xla/pjrt/proto/compile_options.proto.
enum CompileField { kBuildOptions = 3, kPortable = 4, kOverrides = 7 };
enum BuildField { kDeviceOrdinal = 1, kReplicas = 4, kPartitions = 5, kDeviceAssignment = 9 };
enum AssignmentField { kReplicaCount = 1, kComputationCount = 2, kComputationDevices = 3 };
enum ComputationField { kReplicaDeviceIds = 1 };
enum MapField { kKey = 1, kValue = 2 };
enum OverrideField { kStringValue = 1, kBoolValue = 2, kIntValue = 3, kDoubleValue = 4 };
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2 };

class Message {
 public:
  void integer(int field, int64_t value) {
    tag(field, kVarint);
    varint(static_cast<uint64_t>(value));
  }
  void real(int field, double value) {
    tag(field, kFixed64);
    char raw[sizeof(value)];
    std::memcpy(raw, &value, sizeof(value));
    bytes_.append(raw, sizeof(raw));
  }
  void text(int field, const std::string& value) {
    tag(field, kBytes);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  void packed(int field, std::initializer_list<int64_t> values) {
    Message list;
    for (int64_t value : values) list.varint(static_cast<uint64_t>(value));
    message(field, list);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void tag(int field, WireType type) { varint(static_cast<uint64_t>(field) << 3 | type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

Message override_value(const OptionValue& option) {
  Message message;
  std::visit(
      [&](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        // A oneof says which member is set, so its default (false, 0, "") is written too.
        if constexpr (std::is_same_v<Value, std::string>)
          message.text(kStringValue, value);
        else if constexpr (std::is_same_v<Value, bool>)
          message.integer(kBoolValue, value ? 1 : 0);
        else if constexpr (std::is_same_v<Value, int64_t>)
          message.integer(kIntValue, value);
        else
          message.real(kDoubleValue, value);
      },
      option);
  return message;
}

}  // namespace

std::string CompileOptions::encode() const {
  Message build;
  build.integer(kDeviceOrdinal, -1);  // absent would mean device 0
  build.integer(kReplicas, 1);
  build.integer(kPartitions, 1);
  if (!portable) {
    Message devices, assignment;
    devices.packed(kReplicaDeviceIds, {device});
    assignment.integer(kReplicaCount, 1);
    assignment.integer(kComputationCount, 1);
    assignment.message(kComputationDevices, devices);
    build.message(kDeviceAssignment, assignment);
  }
  Message top;
  // Never empty, even with every default: plugins abort on an empty message.
  top.message(kBuildOptions, build);
  top.integer(kPortable, portable ? 1 : 0);
  // Overrides, never field debug_options: that one replaces the engine's flag defaults wholesale.
  for (const auto& [name, value] : overrides) {
    Message entry;
    entry.text(kKey, name);
    entry.message(kValue, override_value(value));
    top.message(kOverrides, entry);
  }
  return top.take();
}

}  // namespace torch_tpu::pjrt
