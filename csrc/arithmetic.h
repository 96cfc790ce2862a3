// How the calling thread computes with floats.
#pragma once
#include <cfenv>

namespace penstock {

// While one lives, the calling thread rounds to nearest and keeps denormals, whatever else the process has set (torch.set_flush_denormal, a
// library built with -ffast-math): bits depend on no thread.
class DefaultArithmetic {
 public:
  DefaultArithmetic() { std::fegetenv(&previous_), std::fesetenv(FE_DFL_ENV); }
  ~DefaultArithmetic() { std::fesetenv(&previous_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t previous_;
};

}  // namespace penstock
