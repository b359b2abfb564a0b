// The random state of a device: {seed, offset} on the host, Philox 4x32-10 on the device.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace torch_tpu::aten {

// Seed and position in the stream of 32-bit numbers, shared by generators that alias each other (graph-safe state).
struct PhiloxState : public c10::intrusive_ptr_target {
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;  // in 32-bit numbers, a multiple of 4
};

// The state tensor is 16 bytes, little endian: seed, then offset. DTensor's tracker reads and writes that layout.
class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex index);

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  void set_current_seed(uint64_t seed) override;  // also sets the offset to 0
  uint64_t current_seed() const override { return state_->seed; }
  uint64_t seed() override;  // a non-deterministic one, which becomes the current seed
  // Raises unless a multiple of 4: one Philox block gives four numbers.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return state_->offset; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // {seed, first block}: takes the next `blocks` Philox counters, [first, first + blocks), each giving four 32-bit
  // numbers. Takes the generator's mutex.
  std::pair<uint64_t, uint64_t> reserve(uint64_t blocks);

 private:
  GeneratorImpl(c10::DeviceIndex index, c10::intrusive_ptr<PhiloxState> state);
  GeneratorImpl* clone_impl() const override;

  c10::intrusive_ptr<PhiloxState> state_;
};

// The device's own generator. Opens nothing: a seed set before the first device use is kept.
const at::Generator& default_generator(int device);

// The given generator, or the device's own. Raises as PyTorch does for one of another device type.
GeneratorImpl& resolve(const std::optional<at::Generator>& generator, int device);

}  // namespace torch_tpu::aten
