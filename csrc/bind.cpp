// Python bindings of Model. The GIL is released during computation.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "arrays.h"
#include "model.h"
#include "pack.h"
#include "store.h"

using namespace penstock;

namespace {

using Ids = In<std::int64_t, nb::ndim<1>>;
using Floats = In<float, nb::ndim<1>>;
using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

const Kernels& kernels_by_name(const std::string& name) {
  for (int i = 0; i < num_kernels(); ++i)
    if (name.empty() || name == kernels(i).name) return kernels(i);
  throw std::invalid_argument("no kernels " + name + " here");
}

void check_count(const char* what, std::size_t count, std::size_t expected) {
  if (count != expected)
    throw std::invalid_argument(std::string(what) + " are " + std::to_string(count) + ", not " + std::to_string(expected));
}

// Index of a name in one of the name tables.
template <int N> int enum_index(const char* const (&names)[N], const std::string& name) {
  for (int i = 0; i < N; ++i)
    if (name == names[i]) return i;
  throw std::invalid_argument(name + " is not known here");
}

Op to_op(const nb::dict& fields) {
  Op op{};
  std::size_t taken = 0;
  const auto take = [&](const char* name, auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if (!fields.contains(name)) return;
    field = nb::cast<Field>(fields[name]);
    ++taken;
  };
  std::string kind, activation = ACTIVATIONS[0];
  take("kind", kind), take("activation", activation);
  op.kind = static_cast<Kind>(enum_index(KINDS, kind)), op.activation = static_cast<Activation>(enum_index(ACTIVATIONS, activation));
  take("in", op.in), take("in2", op.in2), take("in3", op.in3);
  take("out", op.out), take("out2", op.out2), take("out3", op.out3);
  take("matrix", op.matrix), take("matrix2", op.matrix2);
  take("weight", op.weight), take("weight2", op.weight2), take("bias", op.bias), take("bias2", op.bias2), take("sinks", op.sinks);
  take("residual", op.residual);
  take("rope_table", op.rope_table), take("layer", op.layer);
  take("heads", op.heads), take("kv_heads", op.kv_heads), take("dim", op.dim), take("count", op.count), take("window", op.window);
  take("by_logits", op.by_logits), take("gathers", op.gathers), take("renormalize", op.renormalize);
  take("writes", op.writes), take("only_if_wanted", op.only_if_wanted);
  take("eps", op.eps), take("offset", op.offset), take("scale", op.scale), take("cap", op.cap);
  take("alpha", op.clamp.alpha), take("limit", op.clamp.limit);
  if (taken != fields.size()) throw std::invalid_argument(kind + " has a field that no operation has");
  return op;
}

// Raises ValueError for what no kernel multiplies.
void check_matrix(const Matrix& m) {
  if (std::min({m.n, m.k, m.group, m.count}) < 1 || m.k > m.k_padded)
    throw std::invalid_argument("a matrix has at least 1 row and 1 column, and room for them");
  if (m.k_padded % m.group || m.group % m.k_per_step()) throw std::invalid_argument("groups must be whole steps, and k whole groups");
  if (m.has_codes() ? m.scale_bytes != 1 && m.scale_bytes != 2 && m.scale_bytes != 4 : m.scale_bytes != 0 || m.has_mins)
    throw std::invalid_argument("codes have scales of 1, 2 or 4 bytes, and numbers none");
  const bool is_signed_i4 = m.format == Format::i4 && m.codebook_is_consecutive() && m.codebook[0] == -8;
  if (m.has_units() && (!is_signed_i4 || m.has_mins || FIXED_K_BLOCK % m.group))
    throw std::invalid_argument("units are for codes -8 to 7 without mins, in groups that divide " + std::to_string(FIXED_K_BLOCK));
  const int shared = m.factor_groups;
  if (shared < 0 || (shared & (shared - 1)) || (shared && (m.scale_bytes != 1 || m.group > FIXED_K_BLOCK || m.num_groups() % shared)))
    throw std::invalid_argument("factors are for scales of 1 byte, each for a power of two of groups of at most " +
                                std::to_string(FIXED_K_BLOCK));
}

Matrix to_matrix(const nb::dict& fields) {
  Matrix m;
  m.format = static_cast<Format>(enum_index(FORMATS, nb::cast<std::string>(fields["format"])));
  m.n = nb::cast<int>(fields["n"]), m.k = nb::cast<int>(fields["k"]), m.k_padded = nb::cast<int>(fields["k_padded"]);
  m.group = nb::cast<int>(fields["group"]), m.scale_bytes = nb::cast<int>(fields["scale_bytes"]);
  m.factor_groups = nb::cast<int>(fields["factor_groups"]);
  m.has_mins = nb::cast<bool>(fields["has_mins"]), m.count = nb::cast<int>(fields["count"]);
  const auto values = nb::cast<std::vector<int>>(fields["values"]);
  if (m.format == Format::i4) check_count("values of 4-bit codes", values.size(), 16);
  for (std::size_t i = 0; i < values.size() && i < 16; ++i) m.codebook[i] = static_cast<std::int8_t>(values[i]);
  check_matrix(m);
  return m;
}

Source source_dtype(const AnyArray& array) {
  const auto type = array.dtype();
  if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float)) {
    if (type.bits == 64) return Source::f64;
    if (type.bits == 32) return Source::f32;
    if (type.bits == 16) return Source::f16;
  }
  if (type.bits == 16) return Source::bf16;  // numpy has no bfloat16: it comes as uint16
  throw std::invalid_argument("weights are float64, float32, float16 or bfloat16");
}

// Number of rows of an array to be packed at `place`: (matrix, first row, half). Raises ValueError if it does not fit.
template <class Array> int checked_rows(const Matrix& m, const std::vector<int>& place, const Array& array) {
  if (place.size() != 3 || place[2] < -1 || place[2] > 1 || array.ndim() != 2)
    throw std::invalid_argument("a place is a matrix, a row and a side, and what is packed has rows");
  const std::int64_t rows = static_cast<std::int64_t>(array.shape(0)), room = place[2] < 0 ? m.n : m.num_panels() * (PANEL / 2);
  if (place[0] < 0 || place[0] >= m.count || place[1] < 0 || place[1] + rows > room || static_cast<std::int64_t>(array.shape(1)) != m.k)
    throw std::invalid_argument(std::to_string(rows) + " rows of " + std::to_string(array.shape(1)) + " from row " +
                                std::to_string(place[1]) + " on do not fit " + std::to_string(room) + " of " + std::to_string(m.k));
  return static_cast<int>(rows);
}

void pack_array(Model& model, int matrix, std::vector<int> place, const AnyArray& numbers) {
  const Source dtype = source_dtype(numbers);
  check_index("matrix", matrix, model.num_matrices());
  const int rows = checked_rows(model.matrix(matrix), place, numbers);
  const nb::gil_scoped_release free;
  pack_numbers(model.pool(), model.matrix(matrix), {place[0], place[1], place[2]}, numbers.data(), dtype, rows);
}

// An optional array of `count` numbers; nullptr for None.
template <class T> const T* optional_numbers(const nb::object& given, std::size_t count, const char* error) {
  if (given.is_none()) return nullptr;
  const auto numbers = nb::cast<AnyArray>(given, false);
  if (numbers.nbytes() != count * sizeof(T)) throw std::invalid_argument(error);
  return static_cast<const T*>(numbers.data());
}

// `multiplied`: units, factors, factors of mins.
void pack_coded(Model& model, int matrix, std::vector<int> place, const In<std::int8_t, nb::ndim<2>>& codes, const AnyArray& scales,
                const nb::object& mins, const nb::tuple& multiplied) {
  check_index("matrix", matrix, model.num_matrices());
  const Matrix& m = model.matrix(matrix);
  const int rows = checked_rows(m, place, codes);
  const auto checked_scales = [&](const AnyArray& numbers) {
    if (numbers.nbytes() != std::size_t(rows) * m.num_groups() * m.scale_bytes)
      throw std::invalid_argument("each group of a row has one scale, and one min or none");
    return numbers.data();
  };
  const void* mins_data = mins.is_none() ? nullptr : checked_scales(nb::cast<AnyArray>(mins, false));
  checked_scales(scales);
  if (m.has_mins != (mins_data != nullptr)) throw std::invalid_argument("there are mins where the matrix has them, and only there");
  check_count("arrays that scales are multiplied with", multiplied.size(), 3);
  const std::size_t num_factors = m.has_factors() ? std::size_t(rows) * (m.num_groups() / m.factor_groups) : 0;
  const auto* units = optional_numbers<float>(multiplied[0], rows, "each row has one unit");
  const auto* factors = optional_numbers<std::uint16_t>(multiplied[1], num_factors, "a row has a factor for its groups");
  const auto* min_factors = optional_numbers<std::uint16_t>(multiplied[2], num_factors, "a row has a factor for the mins of its groups");
  if (m.has_units() != (units != nullptr) || m.has_factors() != (factors != nullptr) ||
      (m.has_factors() && m.has_mins) != (min_factors != nullptr))
    throw std::invalid_argument("rows have units or factors where scales are multiplied with them, and only there");
  const nb::gil_scoped_release free;
  pack_codes(model.pool(), m, {place[0], place[1], place[2]}, {codes.data(), scales.data(), mins_data, units, factors, min_factors, rows});
}

// An attribute of a batch, as it is: a converted temporary would be freed before the step reads it. Raises TypeError for another type.
template <class Array> void take_array(const nb::object& batch, const char* name, Array& array) {
  if (nb::try_cast(batch.attr(name), array, false)) return;
  const char* type = sizeof(*array.data()) == 8 ? " are int64" : " are int32";
  throw nb::type_error((std::string("a batch's ") + name + type + ", one after another").c_str());
}
template <class Array> void take_array(const nb::object& batch, const char* name, Array& array, std::size_t count) {
  take_array(batch, name, array);
  check_count(name, array.shape(0), count);
}

// The sequences of a batch of so many rows. Draft trees that are chains are left out: those need nothing to be gathered.
std::vector<Sequence> sequences_of(const nb::object& batch, std::size_t num_rows) {
  Ids contexts, row_starts;
  In<std::int32_t, nb::ndim<1>> parents;
  take_array(batch, "contexts", contexts), take_array(batch, "row_starts", row_starts, contexts.shape(0) + 1);
  const bool has_parents = !batch.attr("parents").is_none();
  if (has_parents) take_array(batch, "parents", parents, num_rows);
  const nb::object tables = batch.attr("block_tables");
  std::vector<Sequence> sequences;
  sequences.reserve(contexts.shape(0));
  for (std::size_t i = 0; i < contexts.shape(0); ++i) {
    const std::int64_t first = row_starts.data()[i], end = row_starts.data()[i + 1];
    if (first < 0 || end < first || end > static_cast<std::int64_t>(num_rows))
      throw std::invalid_argument("a sequence has the rows from " + std::to_string(first) + " to " + std::to_string(end) + " of " +
                                  std::to_string(num_rows));
    check_index("a context's length", contexts.data()[i], std::numeric_limits<int>::max() - SPAN);  // a span more is an int
    const auto table = nb::cast<Ids>(tables[i], false);
    const int rows = static_cast<int>(end - first);
    sequences.push_back({static_cast<int>(first), rows, static_cast<int>(contexts.data()[i]), table.data(), table.shape(0), nullptr});
    for (int r = 0; has_parents && r < rows; ++r)
      if (parents.data()[first + r] != r - 1) sequences.back().parents = parents.data() + first;
  }
  return sequences;
}

// Runs a step of a Batch (penstock/compute/backends/contract.py). `given`: (buffer, array) pairs of buffers in the caller's memory:
// inputs of the program, and an output that is computed in place.
void step(Model& model, const nb::object& batch, const std::vector<int>& wanted, const nb::list& given) {
  Ids tokens, logit_rows;
  take_array(batch, "tokens", tokens), take_array(batch, "logit_rows", logit_rows);
  const std::size_t rows = tokens.shape(0);
  Ids positions, slots;
  take_array(batch, "positions", positions, rows), take_array(batch, "slots", slots, rows);
  Batch b;
  b.rows = static_cast<int>(rows), b.logits = static_cast<int>(logit_rows.shape(0));
  b.tokens = tokens.data(), b.positions = positions.data(), b.slots = slots.data(), b.logit_rows = logit_rows.data();
  b.sequences = sequences_of(batch, rows);
  b.wanted.resize(model.num_buffers(), false);
  for (int buffer : wanted) check_index("buffer", buffer, model.num_buffers()), b.wanted[buffer] = true;
  for (const nb::handle each : given) {
    const auto [buffer, array] = nb::cast<std::pair<int, Out<float>>>(each, false);
    check_index("buffer", buffer, model.num_buffers());
    check_count("a buffer's numbers", array.size(), model.buffer_size(buffer, b));
    b.given.emplace_back(buffer, array.data()), b.wanted[buffer] = true;
  }
  check(b, model.limits());
  const nb::gil_scoped_release free;
  model.step(std::move(b));
}

// A buffer of the last step.
void copy_result(const Model& model, int buffer, const Out<float>& out) {
  check_index("buffer", buffer, model.num_buffers());
  const Buffer& result = model.result(buffer);
  check_count("a buffer's numbers", out.size(), result.size);
  std::copy_n(result.data, result.size, out.data());
}

void check_slot(const Cache& c, std::int64_t slot) { check_index("slot", slot, static_cast<std::int64_t>(c.slots)); }

// The cache of a layer, after checking slots and the shape [slots, heads, dim]. Raises IndexError and ValueError.
template <class Array> const Cache& checked_cache(Model& model, int layer, const Ids& slots, const Array& keys, const Array& values) {
  if (layer < 0 || layer >= model.num_caches()) throw nb::index_error(("there is no layer " + std::to_string(layer)).c_str());
  const Cache& c = model.cache(layer);
  const std::size_t shape[] = {slots.shape(0), std::size_t(c.heads), std::size_t(c.dim)};
  for (int i = 0; i < 3; ++i)
    if (keys.shape(i) != shape[i] || values.shape(i) != shape[i]) throw std::invalid_argument("keys and values are [slots, heads, dim]");
  for (std::size_t i = 0; i < slots.shape(0); ++i) check_slot(c, slots.data()[i]);
  return c;
}

// Keys and values [slots, heads, dim] of one layer, from and to the pool.
void read_slots(Model& model, int layer, const Ids& slots, const Out<float, nb::ndim<3>>& keys, const Out<float, nb::ndim<3>>& values) {
  const Cache& c = checked_cache(model, layer, slots, keys, values);
  const nb::gil_scoped_release free;
  float *k = keys.data(), *v = values.data();
  for (std::size_t i = 0; i < slots.shape(0); ++i)
    for (int head = 0; head < c.heads; ++head, k += c.dim, v += c.dim) model.read_token(layer, head, slots.data()[i], k, v);
}

void write_slots(Model& model, int layer, const Ids& slots, const In<float, nb::ndim<3>>& keys, const In<float, nb::ndim<3>>& values) {
  const Cache& c = checked_cache(model, layer, slots, keys, values);
  const nb::gil_scoped_release free;
  const float *k = keys.data(), *v = values.data();
  for (std::size_t i = 0; i < slots.shape(0); ++i)
    for (int head = 0; head < c.heads; ++head, k += c.dim, v += c.dim) model.write_token(layer, head, slots.data()[i], k, v);
}

void trim_heap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

void copy_slots(Model& model, const In<std::int64_t, nb::ndim<2>>& pairs) {
  const std::int64_t* pair = pairs.data();
  if (pairs.shape(1) != 2) throw std::invalid_argument("copies are pairs of slots");
  for (std::size_t i = 0; model.num_caches() > 0 && i < 2 * pairs.shape(0); ++i) check_slot(model.cache(0), pair[i]);
  const nb::gil_scoped_release free;
  for (std::size_t i = 0, count = pairs.shape(0); i < count;) {
    const auto is_tile_copy = [&] {  // 16 slots that are a whole tile on both sides
      if (i + TILE_SLOTS > count || pair[2 * i] % TILE_SLOTS || pair[2 * i + 1] % TILE_SLOTS) return false;
      for (int lane = 1; lane < TILE_SLOTS; ++lane)
        for (int side = 0; side < 2; ++side)
          if (pair[2 * (i + lane) + side] != pair[2 * i + side] + lane) return false;
      return true;
    };
    if (is_tile_copy()) {
      model.copy_tile(pair[2 * i] / TILE_SLOTS, pair[2 * i + 1] / TILE_SLOTS);
      i += TILE_SLOTS;
    } else {
      model.copy_slot(pair[2 * i], pair[2 * i + 1]);
      ++i;
    }
  }
}

}  // namespace

void bind_model(nb::module_& module) {
  module.def("kernel_names", [] {
    std::vector<std::string> names;
    for (int i = 0; i < num_kernels(); ++i) names.emplace_back(kernels(i).name);
    return names;
  }, "The kernels that this process may use, the best first.");
  module.def("rows_for_codes", [](const std::string& name, const nb::dict& fields, bool dequantize) {
    Matrix codes = to_matrix(fields);
    codes.dequantized = dequantize && codes.may_be_dequantized();
    return kernels_by_name(name).takes_fixed16(codes) ? "int16" : "bf16";
  }, "The numbers of rows that these kernels multiply with codes, where they are not rounded to int8; '' names the best kernels.");
  module.def("int8_rows", [](const std::string& name) { return kernels_by_name(name).int8_elem_bytes == 2 ? "int16" : "int8"; },
             "The numbers as which these kernels multiply rows that are rounded to int8; '' names the best kernels.");
  module.def("has_tiles", [](const std::string& name) { return kernels_by_name(name).amx_row_bytes != nullptr; },
             "Whether these kernels multiply on AMX tiles; '' names the best kernels.");
  nb::class_<Pool>(module, "Pool").def(nb::init<int, const std::vector<int>&>());
  nb::class_<Model>(module, "Model")
      .def("__init__", [](Model* at, std::shared_ptr<Pool> pool, const std::string& name, bool bf16, bool int8, bool dequantize) {
        new (at) Model(std::move(pool), kernels_by_name(name), bf16, int8, dequantize);
      }, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg("dequantize") = false)
      .def("kernels", [](const Model& model) { return model.kernels().name; })
      .def("add_buffer", &Model::add_buffer)
      .def("add_vector", [](Model& model, const Floats& values) { return model.add_vector(values.data(), values.shape(0)); })
      .def("add_matrix", [](Model& model, const nb::dict& fields) { return model.add_matrix(to_matrix(fields)); })
      .def("add_rope_table", [](Model& model, const Floats& frequencies, float scale) {
        return model.add_rope_table(frequencies.data(), static_cast<int>(frequencies.shape(0)), scale);
      })
      .def("add_cache", &Model::add_cache)
      .def("add_op", [](Model& model, const nb::dict& fields) { model.add_op(to_op(fields)); })
      .def("reserve", &Model::reserve)
      .def("pack", &pack_array)
      .def("pack_codes", &pack_coded, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::arg("multiplied") = nb::make_tuple(nb::none(), nb::none(), nb::none()))
      .def("weight_bytes", &Model::weight_bytes)
      .def("layout_version", [](const Model&) { return LAYOUT_VERSION; }, "Of packed matrices; the same for all instruction sets.")
      .def("weights", [](Model& model) {
        return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(model.weights(), {model.weights_used()}, nb::find(model));
      }, "The memory of all matrices, as it is packed.")
      .def("weight_sums", [](Model& model) { return checksums(model.pool(), model.weights(), model.weights_used()); },
           nb::call_guard<nb::gil_scoped_release>(), "Checksums of that memory, chunk by chunk.")
      .def("read_weights", [](Model& model, const std::string& path, std::size_t offset, const std::vector<std::uint64_t>& sums) {
        return read_packed(model.pool(), path, offset, model.weights(), model.weights_used(), sums);
      }, nb::call_guard<nb::gil_scoped_release>(), "Reads it from a file; whether all of it was there.")
      .def("trim", [](const Model&) { trim_heap(); }, "Gives memory that loading has freed back to the system.")
      .def("set_int8", &Model::set_int8)
      .def("tune_for_zen5", &Model::tune_for_zen5,
           "Whether products take what was fastest on Zen 5, or on other processors; bits are the same.")
      .def("set_cached_bytes", &Model::set_cached_bytes, "Up to how many bytes weights are taken to stay in a cache; bits are the same.")
      .def("set_cache_prefetch", &Model::set_cache_prefetch,
           "Bytes ahead; 0: attention does not read the KV cache as a stream. Not where it multiplies by AMX tiles.")
      .def("step", &step, nb::arg("batch"), nb::arg("wanted"), nb::arg("given"))
      .def("result", &copy_result, nb::arg("buffer"), nb::arg("out").noconvert())
      .def("read_slots", &read_slots, nb::arg("layer"), nb::arg("slots"), nb::arg("keys").noconvert(), nb::arg("values").noconvert())
      .def("write_slots", &write_slots)
      .def("copy_slots", &copy_slots);
}
