#include "aten/generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "aten/device.h"

namespace torch_tpu::aten {
namespace {
constexpr size_t kStateBytes = 2 * sizeof(uint64_t);
constexpr uint64_t kNumbersPerBlock = 4;

void check_offset(uint64_t offset) {
  TORCH_CHECK(offset % kNumbersPerBlock == 0, "offset must be a multiple of 4, got ", offset);
}
}  // namespace

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index) : GeneratorImpl(index, c10::make_intrusive<PhiloxState>()) {}

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index, c10::intrusive_ptr<PhiloxState> state)
    : c10::GeneratorImpl(make_device(index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  state_->seed = seed;
  state_->offset = 0;
}

uint64_t GeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom(/*is_cuda=*/true));  // true: all 64 bits
  return state_->seed;
}

void GeneratorImpl::set_offset(uint64_t offset) {
  check_offset(offset);
  state_->offset = offset;
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  const int64_t bytes = state.numel();
  // A state of 8 bytes is a seed alone, as with other devices.
  TORCH_CHECK(bytes == static_cast<int64_t>(kStateBytes) || bytes == static_cast<int64_t>(sizeof(uint64_t)),
              "RNG state is wrong size");
  uint64_t words[2] = {0, 0};
  std::memcpy(words, state.data(), static_cast<size_t>(bytes));
  check_offset(words[1]);
  state_->seed = words[0];
  state_->offset = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  auto tensor = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
  const uint64_t words[2] = {state_->seed, state_->offset};
  std::memcpy(tensor.mutable_data_ptr(), words, kStateBytes);
  return tensor.getIntrusivePtr();
}

void GeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto* other = dynamic_cast<GeneratorImpl*>(state.get());
  TORCH_CHECK(other != nullptr, "graphsafe_set_state: expected a generator of a tpu device");
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> GeneratorImpl::graphsafe_get_state() const {
  return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(new GeneratorImpl(device().index(), state_));
}

std::pair<uint64_t, uint64_t> GeneratorImpl::reserve(uint64_t blocks) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t first = state_->offset / kNumbersPerBlock;
  state_->offset += blocks * kNumbersPerBlock;
  return {state_->seed, first};
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto state = c10::make_intrusive<PhiloxState>();
  state->seed = state_->seed;
  state->offset = state_->offset;
  return new GeneratorImpl(device().index(), std::move(state));
}

const at::Generator& default_generator(int device) {
  static auto* mutex = new std::mutex;
  static auto* generators = new std::map<int, at::Generator>;  // leaked; nodes are stable
  std::lock_guard<std::mutex> lock(*mutex);
  auto found = generators->find(device);
  if (found == generators->end())
    found = generators->emplace(device, at::make_generator<GeneratorImpl>(static_cast<c10::DeviceIndex>(device))).first;
  return found->second;
}

GeneratorImpl& resolve(const std::optional<at::Generator>& generator, int device) {
  return *at::get_generator_or_default<GeneratorImpl>(generator, default_generator(device));
}

}  // namespace torch_tpu::aten
