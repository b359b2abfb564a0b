// Does a piece of work once for all threads that ask for it at the same time.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace torch_tpu::store {

template <typename Key, typename Value>
class SingleFlight {
 public:
  // Runs `work` and returns its value; a call that finds the key in flight waits and returns a copy of that value.
  // No lock is held while `work` runs. `work` must not throw and must not ask for the same key.
  template <typename Work>
  Value run(const Key& key, Work&& work) {
    std::shared_ptr<Flight> flight;
    bool leader = false;
    {
      std::lock_guard lock(mutex_);
      std::shared_ptr<Flight>& entry = flights_[key];
      leader = !entry;
      if (leader) entry = std::make_shared<Flight>();
      flight = entry;
    }
    if (!leader) {
      std::unique_lock lock(flight->mutex);
      flight->landed.wait(lock, [&] { return flight->value.has_value(); });
      return *flight->value;
    }
    Value value = work();
    {
      std::lock_guard lock(flight->mutex);
      flight->value = value;
    }
    flight->landed.notify_all();
    std::lock_guard lock(mutex_);
    flights_.erase(key);
    return value;
  }

 private:
  struct Flight {
    std::mutex mutex;
    std::condition_variable landed;
    std::optional<Value> value;
  };
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Flight>> flights_;
};

}  // namespace torch_tpu::store
