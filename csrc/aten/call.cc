#include "aten/call.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

#include <cstring>

#include "aten/index_check.h"
#include "aten/storage.h"

namespace torch_tpu::aten {
namespace {

enum Tag : uint64_t {
  kTagNone = 1,
  kTagTensor,
  kTagHostTensor,
  kTagList,
  kTagScalar,
  kTagConstant,
  kTagInts,
  kTagNumber,
  kTagText
};

void push_double(KeyWords& key, double v) {
  uint64_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  key.push_back(bits);
}

bool covers_storage(const at::Tensor& t, const runtime::Slot& slot) {
  return t.numel() * static_cast<int64_t>(t.itemsize()) == slot.bytes() && t.storage_offset() == 0 &&
         t.is_non_overlapping_and_dense();
}

// A 0-d tensor in host memory takes part as a number that is an operand of the program.
void add_host_tensor(Call& call, const at::Tensor& t, int argument) {
  TORCH_CHECK(t.dim() == 0 && t.device().is_cpu(),
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              call.device < 0 ? 0 : call.device, " and ", t.device(), "! (", call.plan->name, ")");
  Operand operand;
  operand.kind = Operand::Kind::kScalar;
  operand.type = {to_dtype(t.scalar_type()), {}};
  std::memcpy(operand.bytes, t.const_data_ptr(), t.itemsize());
  const bool wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
  call.tensors.push_back({&t, argument, static_cast<int>(call.operands.size()), false, false});
  call.operands.push_back(std::move(operand));
  call.key.push_back(kTagHostTensor | static_cast<uint64_t>(t.scalar_type()) << 8 |
                     static_cast<uint64_t>(wrapped) << 16);
}

int find_slot(Call& call, runtime::Slot* slot) {
  for (size_t i = 0; i < call.operands.size(); ++i)
    if (call.operands[i].slot == slot) return static_cast<int>(i);
  return -1;
}

void push_view(KeyWords& key, const at::Tensor& t) {
  for (int64_t s : t.sizes()) key.push_back(static_cast<uint64_t>(s));
  for (int64_t s : t.strides()) key.push_back(static_cast<uint64_t>(s));
  key.push_back(static_cast<uint64_t>(t.storage_offset()));
}

// Is the buffer exactly what the tensor shows, so that the key needs neither strides nor the buffer's own shape?
bool is_identity(const at::Tensor& t, const hlo::Type& base) {
  if (to_dtype(t.scalar_type()) != base.dtype || t.storage_offset() != 0 || !t.is_contiguous()) return false;
  return t.sizes() == at::IntArrayRef(base.shape);
}

void add_tensor(Call& call, const at::Tensor& t, int argument, bool written, bool out) {
  if (!t.is_privateuseone()) {
    TORCH_CHECK(!written, "Expected all tensors to be on the same device, but found at least two devices, tpu:",
                call.device < 0 ? 0 : call.device, " and ", t.device(), "! (", call.plan->name, ")");
    add_host_tensor(call, t, argument);
    return;
  }
  runtime::Slot* slot = slot_of(t);
  const int device = t.device().index();
  if (call.device < 0) call.device = device;
  TORCH_CHECK(call.device == device,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:", call.device,
              " and tpu:", device, "! (", call.plan->name, ")");
  TensorUse use{&t, argument, find_slot(call, slot), written, false};
  const bool first = use.operand < 0;
  if (first) {
    use.fresh = out && covers_storage(t, *slot);
    if (t.numel() > 0) {
      Operand operand;
      operand.slot = slot;
      operand.written = written;
      // A slot whose contents do not matter is not read (an earlier failure may have poisoned it: overwriting it whole
      // heals it), but remembered: a later argument may share it. `value` tells whether it becomes an operand.
      if (!use.fresh) operand.value = operand_of_slot(*slot);
      use.operand = static_cast<int>(call.operands.size());
      call.operands.push_back(std::move(operand));
    }
  } else {
    Operand& operand = call.operands[use.operand];
    operand.written |= written;
    if (!operand.value && !out) operand.value = operand_of_slot(*slot);
  }
  const auto* impl = t.unsafeGetTensorImpl();
  const runtime::ValueRef* value = use.operand >= 0 ? &call.operands[use.operand].value : nullptr;
  const bool has_value = value != nullptr && *value;
  const bool identity = has_value && is_identity(t, (*value)->type);
  call.key.push_back(kTagTensor | static_cast<uint64_t>(t.scalar_type()) << 8 |
                     static_cast<uint64_t>(impl->is_wrapped_number()) << 16 | static_cast<uint64_t>(t.is_conj()) << 17 |
                     static_cast<uint64_t>(t.is_neg()) << 18 | static_cast<uint64_t>(written) << 19 |
                     static_cast<uint64_t>(use.fresh) << 20 | static_cast<uint64_t>(has_value) << 21 |
                     static_cast<uint64_t>(identity) << 22 | static_cast<uint64_t>(t.dim()) << 24 |
                     static_cast<uint64_t>(use.operand + 1) << 32);
  if (identity) {
    for (int64_t s : t.sizes()) call.key.push_back(static_cast<uint64_t>(s));
  } else {
    push_view(call.key, t);
    if (has_value) {
      const hlo::Type& base = (*value)->type;
      call.key.push_back(static_cast<uint64_t>(base.dtype) | static_cast<uint64_t>(base.shape.size()) << 8);
      for (int64_t s : base.shape) call.key.push_back(static_cast<uint64_t>(s));
    } else {
      call.key.push_back(static_cast<uint64_t>(slot->bytes()));
    }
  }
  call.tensors.push_back(use);
}

bool is_specialised(const ops::Row& row, int functional, double v) {
  auto found = row.specialise.find(functional);
  if (found == row.specialise.end()) return false;
  if (found->second.empty()) return true;
  for (double s : found->second)
    if (s == v) return true;
  return false;
}

template <typename T>
void add_scalar_operand(Call& call, int argument, DType dtype, T v) {
  Operand operand;
  operand.kind = Operand::Kind::kScalar;
  operand.type = {dtype, {}};
  std::memcpy(operand.bytes, &v, sizeof v);
  call.scalars.push_back({argument, static_cast<int>(call.operands.size()), 0});
  call.operands.push_back(std::move(operand));
  call.key.push_back(kTagScalar | static_cast<uint64_t>(dtype) << 8);
}

void add_scalar(Call& call, const c10::IValue& v, int argument) {
  const int functional = call.plan->args[argument].functional;
  if (!v.isComplexDouble()) {
    const double value = v.isDouble() ? v.toDouble()
                         : v.isBool() ? static_cast<double>(v.toBool())
                                      : static_cast<double>(v.toInt());
    if (is_specialised(*call.plan->row, functional, value)) {
      call.scalars.push_back({argument, -1, value});
      call.key.push_back(kTagConstant | static_cast<uint64_t>(v.isDouble() ? 1 : v.isBool() ? 2 : 3) << 8);
      push_double(call.key, value);
      return;
    }
  }
  if (v.isComplexDouble()) {
    add_scalar_operand(call, argument, DType::kC128, v.toComplexDouble());
  } else if (v.isDouble()) {
    add_scalar_operand(call, argument, DType::kF64, v.toDouble());
  } else if (v.isBool()) {
    add_scalar_operand(call, argument, DType::kBool, v.toBool());
  } else {
    add_scalar_operand(call, argument, DType::kI64, v.toInt());
  }
}

void add_tensor_list(Call& call, const c10::IValue& v, int argument, bool written, bool out) {
  if (call.element >= 0) {
    const at::Tensor* t = tensor_argument(call, argument);
    if (t != nullptr)
      add_tensor(call, *t, argument, written, out);
    else
      call.key.push_back(kTagNone);
    return;
  }
  auto list = v.toListRef();
  call.key.push_back(kTagList | list.size() << 8);
  for (const c10::IValue& item : list) {
    if (item.isTensor() && item.toTensor().defined()) {
      add_tensor(call, item.toTensor(), argument, written, out);
    } else {
      call.tensors.push_back({nullptr, argument, -1, false, false});
      call.key.push_back(kTagNone);
    }
  }
}

void add_plain(Call& call, const c10::IValue& v, ArgKind kind) {
  KeyWords& key = call.key;
  switch (kind) {
    case ArgKind::kIntList: {
      auto list = v.toListRef();
      key.push_back(kTagInts | list.size() << 8);
      for (const auto& item : list)
        key.push_back(static_cast<uint64_t>(item.isInt() ? item.toInt() : item.toSymInt().expect_int()));
      break;
    }
    case ArgKind::kDoubleList:
    case ArgKind::kScalarList: {
      auto list = v.toListRef();
      key.push_back(kTagInts | list.size() << 8);
      for (const auto& item : list) push_double(key, item.toScalar().toDouble());
      break;
    }
    case ArgKind::kBoolList: {
      auto list = v.toListRef();
      key.push_back(kTagInts | list.size() << 8);
      for (const auto& item : list) key.push_back(item.toBool());
      break;
    }
    case ArgKind::kDouble:
      key.push_back(kTagNumber);
      push_double(key, v.toDouble());
      break;
    case ArgKind::kString: {
      const auto& text = v.toStringRef();
      key.push_back(kTagText | text.size() << 8);
      for (size_t i = 0; i < text.size(); i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
        key.push_back(word);
      }
      break;
    }
    case ArgKind::kInt:
    case ArgKind::kBool:
    case ArgKind::kDType:
      key.push_back(kTagNumber);
      key.push_back(static_cast<uint64_t>(v.isBool() ? v.toBool() : v.isInt() ? v.toInt() : v.toSymInt().expect_int()));
      break;
    default:  // devices, generators: not part of the program
      break;
  }
}

}  // namespace

const at::Tensor* tensor_argument(const Call& call, size_t i) {
  const c10::IValue& v = call.arguments[i];
  if (v.isNone()) return nullptr;
  if (v.isTensor()) return v.toTensor().defined() ? &v.toTensor() : nullptr;
  if (call.element < 0 || !v.isList()) return nullptr;
  auto list = v.toListRef();
  if (static_cast<size_t>(call.element) >= list.size()) return nullptr;
  const c10::IValue& item = list[call.element];
  return item.isTensor() && item.toTensor().defined() ? &item.toTensor() : nullptr;
}

uint64_t ambient_key(const ops::Row& row) {
  auto& context = at::globalContext();
  // PyTorch looks the precision up in a table, and no pointwise op multiplies matrices.
  const uint64_t precision = row.pointwise ? 0 : static_cast<uint64_t>(context.float32MatmulPrecision());
  return precision | static_cast<uint64_t>(context.deterministicAlgorithms()) << 4 |
         static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 8 |
         static_cast<uint64_t>(index_check()) << 16;
}

void gather(Call& call) {
  const Plan& plan = *call.plan;
  call.key.push_back(plan.id);
  call.key.push_back(ambient_key(*plan.row));
  for (size_t i = 0; i < plan.args.size(); ++i) {
    const ArgPlan& arg = plan.args[i];
    const c10::IValue& v = call.arguments[i];
    if (v.isNone()) {
      call.key.push_back(kTagNone);
      continue;
    }
    const int argument = static_cast<int>(i);
    const bool out = arg.overwritten;
    switch (arg.kind) {
      case ArgKind::kTensor:
        if (v.toTensor().defined())
          add_tensor(call, v.toTensor(), argument, arg.written, out);
        else
          call.key.push_back(kTagNone);
        break;
      case ArgKind::kTensorList:
        add_tensor_list(call, v, argument, arg.written, out);
        break;
      case ArgKind::kScalar:
        add_scalar(call, v, argument);
        break;
      case ArgKind::kDouble:
        if (plan.row->double_operands)
          add_scalar_operand(call, argument, DType::kF64, v.toDouble());
        else
          add_plain(call, v, arg.kind);
        break;
      default:
        add_plain(call, v, arg.kind);
    }
  }
  // Executables are not portable everywhere.
  call.key[1] |= static_cast<uint64_t>(call.device < 0 ? 0 : call.device) << 24;
}

}  // namespace torch_tpu::aten
