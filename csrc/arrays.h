// Arrays that Python hands over: C-contiguous, in the memory of the CPU, taken as they are.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;

template <class T, class... Shape> using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu, Shape...>;
template <class T, class... Shape> using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu, Shape...>;
