// Events that become ready late: not before the engine's own event, not before a due time, not while events are held.
#pragma once

#include <pjrt_c_api.h>

#include <chrono>
#include <functional>

#include "error.h"

namespace torch_tpu::test_plugin {

using Clock = std::chrono::steady_clock;

// Wraps `inner`, an event of the engine (taken over; null counts as ready). `failure` replaces success. `before_ready`
// runs just before the event becomes ready without a failure.
PJRT_Event* make_late_event(PJRT_Event* inner, Clock::time_point due, Failure failure = {},
                            std::function<void()> before_ready = {});

// While held, no event becomes ready.
void hold_events(bool hold);

// Replaces the event functions of `api`. Every event of the plugin must then come from make_late_event.
void install_event_functions(const PJRT_Api* target, PJRT_Api* api);

}  // namespace torch_tpu::test_plugin
