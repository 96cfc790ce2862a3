// penstock._native: each file that offers something to Python has a bind function; here they are called.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_drafts(nb::module_& module);
void bind_features(nb::module_& module);
void bind_measure(nb::module_& module);
void bind_model(nb::module_& module);
void bind_quantize(nb::module_& module);
void bind_sample(nb::module_& module);

NB_MODULE(_native, module) {
  module.doc() = "Native kernels of Penstock. May be missing: it is built only where a C++ compiler was found.";
  bind_drafts(module);
  bind_features(module);
  bind_measure(module);
  bind_model(module);
  bind_quantize(module);
  bind_sample(module);
}
