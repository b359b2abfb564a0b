// The C layout of XLA's foreign function interface, as far as a handler needs it: declarations of our own, checked
// against the engine (engine.md, part I section 4). Version 0.1 is claimed: every engine that has the interface accepts
// it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_tpu::pjrt::ffi_abi {

enum ExtensionType : int { kMetadataExtension = 1 };
struct Extension {
  size_t struct_size;
  ExtensionType type;
  Extension* next;
};

struct Version {
  size_t struct_size;
  Extension* extension_start;
  int major, minor;
};

// Asked for once at registration, through an extension of an otherwise empty frame.
struct Metadata {
  size_t struct_size;
  Version api_version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Error;
struct ErrorCreateArguments {
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  int code;  // the numbers of PJRT_Error_Code
};
using ErrorCreate = Error* (*)(ErrorCreateArguments*);

struct Api {
  size_t struct_size;
  Extension* extension_start;
  Version api_version;
  void* internal;
  ErrorCreate error_create;
};

struct Buffer {
  size_t struct_size;
  Extension* extension_start;
  int dtype;  // numbers of XLA's PrimitiveType
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct ByteSpan {
  const char* data;
  size_t size;
};
enum AttributeType : int { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };
struct Scalar {
  int dtype;
  void* value;
};
struct Array {
  int dtype;
  size_t size;
  void* data;
};

constexpr int kBufferArgument = 1;
struct Arguments {  // and, of the same layout, results
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  int* types;
  void** values;
};
struct Attributes {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  AttributeType* types;
  ByteSpan** names;
  void** values;
};

constexpr int kExecuteStage = 3;
struct CallFrame {
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  int stage;
  Arguments arguments;
  Arguments results;
  Attributes attributes;
};
using Handler = Error* (*)(CallFrame*);

// PJRT's extension number 5; `register_handler` takes a struct without the usual extension pointer.
struct RegisterArguments {
  size_t struct_size;
  const char* name;
  size_t name_size;
  void* handler;
  const char* platform;
  size_t platform_size;
  int traits;
};

static_assert(sizeof(CallFrame) == 168 && offsetof(Api, error_create) == 48 && sizeof(Buffer) == 48);
static_assert(offsetof(Metadata, traits) + sizeof(uint32_t) == 36);

}  // namespace torch_tpu::pjrt::ffi_abi
