// Python bindings of Sampler. The GIL is released during computation.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.h"
#include "model.h"
#include "sample.h"

using namespace penstock;

namespace {

using Matrix2 = In<float, nb::ndim<2>>;

constexpr std::size_t MAX_VOCAB = std::size_t{1} << 30;  // so that an index and a block more are an int

// `rows`: indices of rows of the matrix, or None for all.
struct Chosen {
  std::vector<std::int64_t> at;
  Logits logits;

  template <class Matrix> Chosen(const Matrix& matrix, const nb::object& rows) {
    if (!rows.is_none()) at = nb::cast<std::vector<std::int64_t>>(rows);
    if (matrix.shape(1) > MAX_VOCAB) throw std::invalid_argument("a row of logits has at most " + std::to_string(MAX_VOCAB) + " tokens");
    if (matrix.shape(1) == 0) throw std::invalid_argument("a row of logits needs at least 1 token");
    for (const std::int64_t row : at)
      if (row < 0 || row >= static_cast<std::int64_t>(matrix.shape(0))) throw std::invalid_argument("there is no such row of logits");
    const std::size_t count = rows.is_none() ? matrix.shape(0) : at.size();
    logits = {matrix.data(), static_cast<int>(count), static_cast<int>(matrix.shape(1)), rows.is_none() ? nullptr : at.data()};
  }
};

nb::list choose(Sampler& sampler, const Matrix2& matrix, const nb::object& rows, const nb::list& drawings, const nb::list& indices) {
  const Chosen chosen(matrix, rows);
  const std::size_t count = chosen.logits.rows;
  if (drawings.size() != count || indices.size() != count) throw std::invalid_argument("each row of logits needs a drawing and an index");
  std::vector<const Drawing*> how(count);
  std::vector<std::int64_t> numbers(count), tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    how[i] = &nb::cast<const Drawing&>(drawings[i]);
    numbers[i] = nb::cast<std::int64_t>(indices[i]);
  }
  {
    const nb::gil_scoped_release free;
    sampler.choose(chosen.logits, how.data(), numbers.data(), tokens.data());
  }
  nb::list found;
  for (const std::int64_t token : tokens) found.append(token);
  return found;
}

void score(Sampler& sampler, const Matrix2& matrix, const nb::object& rows, const In<std::int64_t, nb::ndim<1>>& tokens,
           const Out<std::int64_t, nb::ndim<1>>& ranks, const Out<double, nb::ndim<2>>& values, const Out<std::int64_t, nb::ndim<2>>& ids) {
  const Chosen chosen(matrix, rows);
  const std::size_t count = chosen.logits.rows, num = ids.shape(1);
  if (tokens.shape(0) != count || ranks.shape(0) != count || values.shape(0) != count || ids.shape(0) != count ||
      values.shape(1) != num + 1)
    throw std::invalid_argument("tokens, ranks, values and ids must have a row for each row of logits");
  if (num > matrix.shape(1)) throw std::invalid_argument("there are fewer tokens than likeliest ones asked for");
  for (std::size_t i = 0; i < count; ++i)
    if (tokens.data()[i] < 0 || tokens.data()[i] >= chosen.logits.vocab) throw std::invalid_argument("a token is outside the vocabulary");
  const nb::gil_scoped_release free;
  sampler.score(chosen.logits, {tokens.data(), static_cast<int>(num), ranks.data(), values.data(), ids.data()});
}

void forbid(Sampler& sampler, const Out<float, nb::ndim<2>>& logits, const nb::object& rows,
            const In<std::uint32_t, nb::ndim<2>>& allowed) {
  const Chosen chosen(logits, rows);
  if (allowed.shape(0) != static_cast<std::size_t>(chosen.logits.rows) || allowed.shape(1) * 32 < logits.shape(1))
    throw std::invalid_argument("each row of logits needs a bit for each token");
  std::vector<std::int64_t> once = chosen.at;
  std::sort(once.begin(), once.end());
  if (std::adjacent_find(once.begin(), once.end()) != once.end()) throw std::invalid_argument("a row of logits is given twice");
  const nb::gil_scoped_release free;
  sampler.forbid(logits.data(), chosen.logits, allowed.data(), static_cast<int>(allowed.shape(1)));
}

constexpr double COLDEST = 1e-30, HOTTEST = 1e30;  // beyond these the result in float32 does not change

}  // namespace

void bind_sample(nb::module_& module) {
  nb::class_<Drawing>(module, "Drawing")
      .def("__init__", [](Drawing* at, double temperature, std::int64_t top_k, double top_p, double min_p, double typical_p,
                          std::uint64_t seed) {
        temperature = temperature == 0 ? 0 : std::min(std::max(temperature, COLDEST), HOTTEST);
        new (at) Drawing{static_cast<float>(temperature), top_k, top_p, min_p, typical_p, seed};
      }, nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"), nb::arg("typical_p"), nb::arg("seed"));
  nb::class_<Sampler>(module, "Sampler")
      .def("__init__", [](Sampler* at, Model& model) { new (at) Sampler(model.pool(), model.kernels()); }, nb::keep_alive<1, 2>())
      .def("choose", &choose, nb::arg("logits"), nb::arg("rows").none(), nb::arg("drawings"), nb::arg("indices"))
      .def("score", &score, nb::arg("logits"), nb::arg("rows").none(), nb::arg("tokens"), nb::arg("ranks").noconvert(),
           nb::arg("values").noconvert(), nb::arg("ids").noconvert())
      .def("forbid", &forbid, nb::arg("logits").noconvert(), nb::arg("rows").none(), nb::arg("allowed"));
}
