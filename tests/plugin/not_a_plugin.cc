// A healthy shared library that is no PJRT plugin.
extern "C" __attribute__((visibility("default"))) int torch_tpu_not_a_plugin() { return 1; }
