// Python bindings of the draft stores (`suffix` and `ngram`): one call per step for all rows, with their new tokens.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "runs.h"
#include "tries.h"

namespace nb = nanobind;
using namespace penstock;

namespace {

struct Row {
  std::int64_t seq_id;
  std::vector<Token> tokens;  // new since the last call
  std::uint32_t max_tokens;   // longest draft
};

Row row_of(const nb::tuple& fields) {
  Row row{nb::cast<std::int64_t>(fields[0]), nb::cast<std::vector<Token>>(fields[1]), nb::cast<std::uint32_t>(fields[2])};
  for (const Token token : row.tokens)
    if (token == NO_TOKEN) throw std::invalid_argument("token 4294967295 is above the highest that drafts are made of, 4294967294");
  return row;
}

std::vector<Row> rows_of(const nb::list& list) {
  std::vector<Row> rows;
  rows.reserve(list.size());
  for (const nb::handle item : list) rows.push_back(row_of(nb::cast<nb::tuple>(item)));
  return rows;
}

nb::tuple to_tuple(const std::vector<Token>& tokens) {
  const nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(tokens.size())));
  if (!made.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < tokens.size(); ++i) PyTuple_SET_ITEM(made.ptr(), i, nb::cast(tokens[i]).release().ptr());
  return nb::borrow<nb::tuple>(made);
}

// All rows learn before any is drafted for, so that rows of a step see each other's tokens.
nb::list guess_by_tries(Tries& tries, const nb::list& list) {
  const std::vector<Row> rows = rows_of(list);
  for (const Row& row : rows) tries.learn(row.seq_id, row.tokens);
  nb::list guesses;
  for (const Row& row : rows) guesses.append(to_tuple(tries.guess(row.seq_id, row.max_tokens)));
  return guesses;
}

// Runs by sequence.
class AllRuns {
 public:
  AllRuns(std::uint32_t min_run, std::uint32_t max_run) : min_run_(min_run), max_run_(max_run) {
    Runs{min_run, max_run};  // throws if they are out of order
  }

  nb::list guess(const nb::list& list) {
    nb::list guesses;
    for (const nb::handle item : list) {
      const nb::tuple fields = nb::cast<nb::tuple>(item);
      const Row row = row_of(fields);
      Runs& runs = runs_.try_emplace(row.seq_id, min_run_, max_run_).first->second;
      runs.extend(row.tokens);
      guesses.append(to_tuple(runs.guess(row.max_tokens, nb::cast<bool>(fields[3]))));
    }
    return guesses;
  }

  void forget(std::int64_t seq_id) { runs_.erase(seq_id); }

 private:
  std::uint32_t min_run_, max_run_;
  std::unordered_map<std::int64_t, Runs> runs_;
};

}  // namespace

void bind_drafts(nb::module_& module) {
  nb::class_<Tries>(module, "Tries")
      .def(nb::init<std::uint32_t, double, double, std::uint64_t>(), nb::arg("depth"), nb::arg("likely"), nb::arg("doubt"),
           nb::arg("remembered"))
      .def("begin", [](Tries& tries, std::int64_t seq_id, std::uint64_t num_prompt, const nb::bytes& salt) {
        tries.begin(seq_id, num_prompt, std::string(salt.c_str(), salt.size()));
      }, nb::arg("seq_id"), nb::arg("num_prompt"), nb::arg("salt"))
      .def("guess", &guess_by_tries, nb::arg("rows"))
      .def("end", &Tries::end, nb::arg("seq_id"), nb::arg("tokens"))
      .def("forget", &Tries::forget, nb::arg("seq_id"));
  nb::class_<AllRuns>(module, "Runs")
      .def(nb::init<std::uint32_t, std::uint32_t>(), nb::arg("least"), nb::arg("most"))
      .def("guess", &AllRuns::guess, nb::arg("rows"))
      .def("forget", &AllRuns::forget, nb::arg("seq_id"));
}
