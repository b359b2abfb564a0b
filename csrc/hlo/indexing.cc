// Gather and scatter of the Builder.
#include <algorithm>

#include "hlo/attributes.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

bool contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

// The indices' shape without the dimension that holds the index vectors.
Shape batch_shape(const Value& indices, int64_t index_vector_dim) {
  Shape shape = indices.shape();
  if (index_vector_dim < indices.rank()) shape.erase(shape.begin() + index_vector_dim);
  return shape;
}

int64_t vector_length(const Value& indices, int64_t index_vector_dim) {
  return index_vector_dim < indices.rank() ? indices.dim(index_vector_dim) : 1;
}

void append_list(std::string& out, const char* name, const Dims& dims) {
  if (dims.empty()) return;
  if (out.back() != '<') out += ", ";
  out += std::string(name) + " = " + bracketed(dims);
}

void append_number(std::string& out, const char* name, int64_t value) {
  if (out.back() != '<') out += ", ";
  out += std::string(name) + " = " + std::to_string(value);
}

// Result shape of window dims at `window_dims` and batch dims elsewhere; nullopt when they do not add up.
std::optional<Shape> interleave(const Shape& batch, const Shape& window, const Dims& window_dims) {
  if (window.size() != window_dims.size()) return std::nullopt;
  const size_t rank = batch.size() + window.size();
  Shape shape;
  size_t w = 0, b = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (contains(window_dims, static_cast<int64_t>(i))) {
      shape.push_back(window[w++]);
    } else if (b < batch.size()) {
      shape.push_back(batch[b++]);
    }
  }
  if (shape.size() != rank) return std::nullopt;
  return shape;
}

}  // namespace

Value Builder::gather(Value operand, Value indices, const GatherDims& dims) {
  constexpr const char* kOp = "stablehlo.gather";
  if (!present(kOp, {operand, indices})) return placeholder({operand.dtype(), {}});
  const Type plausible{operand.dtype(), indices.shape()};
  const int64_t rank = operand.rank(), d = dims.index_vector_dim;
  if (!is_integer(indices.dtype())) return mistake(kOp, "indices", indices.type().text(), "integers", plausible);
  if (d < 0 || d > indices.rank())
    return mistake(kOp, "index_vector_dim", std::to_string(d), "a dimension of the indices", plausible);
  if (static_cast<int64_t>(dims.start_index_map.size()) != vector_length(indices, d))
    return mistake(kOp, "start_index_map", bracketed(dims.start_index_map),
                   std::to_string(vector_length(indices, d)) + " entries", plausible);
  if (!distinct_dims(kOp, "start_index_map", dims.start_index_map, rank) ||
      !distinct_dims(kOp, "collapsed_slice_dims", dims.collapsed_slice_dims, rank) ||
      !distinct_dims(kOp, "operand_batching_dims", dims.operand_batching_dims, rank) ||
      !distinct_dims(kOp, "start_indices_batching_dims", dims.start_indices_batching_dims, indices.rank()))
    return placeholder(plausible);
  if (dims.operand_batching_dims.size() != dims.start_indices_batching_dims.size())
    return mistake(kOp, "batching dimensions", bracketed(dims.start_indices_batching_dims),
                   "as many as " + bracketed(dims.operand_batching_dims), plausible);
  if (static_cast<int64_t>(dims.slice_sizes.size()) != rank)
    return mistake(kOp, "slice_sizes", bracketed(dims.slice_sizes), "a size per dimension of " + operand.type().text(),
                   plausible);
  Shape window;
  for (int64_t i = 0; i < rank; ++i) {
    const bool dropped = contains(dims.collapsed_slice_dims, i) || contains(dims.operand_batching_dims, i);
    if (dims.slice_sizes[i] < 0 || dims.slice_sizes[i] > operand.dim(i) || (dropped && dims.slice_sizes[i] > 1))
      return mistake(kOp, "slice_sizes", bracketed(dims.slice_sizes),
                     "sizes inside " + operand.type().text() + ", at most 1 where collapsed or batching", plausible);
    if (!dropped) window.push_back(dims.slice_sizes[i]);
  }
  const auto shape = interleave(batch_shape(indices, d), window, dims.offset_dims);
  if (!shape || !std::is_sorted(dims.offset_dims.begin(), dims.offset_dims.end()))
    return mistake(kOp, "offset_dims", bracketed(dims.offset_dims),
                   "one sorted result dimension for each of the slice's " + std::to_string(window.size()), plausible);
  std::string attributes = "dimension_numbers = #stablehlo.gather<";
  append_list(attributes, "offset_dims", dims.offset_dims);
  append_list(attributes, "collapsed_slice_dims", dims.collapsed_slice_dims);
  append_list(attributes, "operand_batching_dims", dims.operand_batching_dims);
  append_list(attributes, "start_indices_batching_dims", dims.start_indices_batching_dims);
  append_list(attributes, "start_index_map", dims.start_index_map);
  append_number(attributes, "index_vector_dim", d);
  attributes += ">, slice_sizes = " + i64_array(dims.slice_sizes) + ", " +
                bool_attribute("indices_are_sorted", dims.indices_are_sorted);
  return emit_one(kOp, {operand, indices}, {operand.dtype(), *shape}, attributes);
}

Values Builder::scatter(const Values& operands, Value indices, const Values& updates, const ScatterDims& dims,
                        const Region& update) {
  constexpr const char* kOp = "stablehlo.scatter";
  std::vector<Type> results, scalars;
  for (const Value& x : operands) {
    results.push_back(x.type());
    scalars.push_back({x.dtype(), {}});
  }
  const auto wrong = [&](std::string_view what, std::string_view got, std::string_view expected) {
    mistake(kOp, what, got, expected);
    return placeholders(results);
  };
  if (!present(kOp, operands) || !present(kOp, {indices}) || !present(kOp, updates)) return placeholders(results);
  if (operands.empty() || operands.size() != updates.size())
    return wrong("operands and updates", std::to_string(operands.size()) + ", " + std::to_string(updates.size()),
                 "as many");
  const int64_t rank = operands[0].rank(), d = dims.index_vector_dim;
  if (!is_integer(indices.dtype())) return wrong("indices", indices.type().text(), "integers");
  if (d < 0 || d > indices.rank()) return wrong("index_vector_dim", std::to_string(d), "a dimension of the indices");
  if (static_cast<int64_t>(dims.scatter_dims_to_operand_dims.size()) != vector_length(indices, d))
    return wrong("scatter_dims_to_operand_dims", bracketed(dims.scatter_dims_to_operand_dims),
                 std::to_string(vector_length(indices, d)) + " entries");
  if (!distinct_dims(kOp, "scatter_dims_to_operand_dims", dims.scatter_dims_to_operand_dims, rank) ||
      !distinct_dims(kOp, "inserted_window_dims", dims.inserted_window_dims, rank) ||
      !distinct_dims(kOp, "input_batching_dims", dims.input_batching_dims, rank) ||
      !distinct_dims(kOp, "update_window_dims", dims.update_window_dims, updates[0].rank()))
    return placeholders(results);
  const Shape batch = batch_shape(indices, d);
  const auto dropped = static_cast<int64_t>(dims.inserted_window_dims.size() + dims.input_batching_dims.size());
  const auto windows = static_cast<int64_t>(dims.update_window_dims.size());
  if (windows + dropped != rank || updates[0].rank() != windows + static_cast<int64_t>(batch.size()))
    return wrong("update_window_dims", bracketed(dims.update_window_dims) + " of updates " + updates[0].type().text(),
                 "the window dimensions of " + operands[0].type().text());
  size_t b = 0;
  for (int64_t i = 0; i < updates[0].rank(); ++i)
    if (!contains(dims.update_window_dims, i) && updates[0].dim(i) != batch[b++])
      return wrong("updates", updates[0].type().text(), "batch sizes " + to_string(batch));
  int64_t w = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (contains(dims.inserted_window_dims, i) || contains(dims.input_batching_dims, i)) continue;
    if (updates[0].dim(dims.update_window_dims[w++]) > operands[0].dim(i))
      return wrong("updates", updates[0].type().text(), "windows inside " + operands[0].type().text());
  }
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].shape() != operands[0].shape() ||
        updates[i].type() != Type{operands[i].dtype(), updates[0].shape()})
      return wrong("operand and update", operands[i].type().text() + ", " + updates[i].type().text(),
                   "equal shapes and dtypes");
  std::string attributes = "scatter_dimension_numbers = #stablehlo.scatter<";
  append_list(attributes, "update_window_dims", dims.update_window_dims);
  append_list(attributes, "inserted_window_dims", dims.inserted_window_dims);
  append_list(attributes, "input_batching_dims", dims.input_batching_dims);
  append_list(attributes, "scatter_indices_batching_dims", dims.scatter_indices_batching_dims);
  append_list(attributes, "scatter_dims_to_operand_dims", dims.scatter_dims_to_operand_dims);
  append_number(attributes, "index_vector_dim", d);
  attributes += ">, " + bool_attribute("indices_are_sorted", dims.indices_are_sorted) + ", " +
                bool_attribute("unique_indices", dims.unique_indices);
  Values all = operands;
  all.push_back(indices);
  all.insert(all.end(), updates.begin(), updates.end());
  std::vector<Type> arguments = scalars;
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  return emit(kOp, all, results, attributes, {{arguments, checked(kOp, scalars, update)}});
}

Value Builder::scatter(Value operand, Value indices, Value updates, const ScatterDims& dims, const Region& update) {
  return scatter(Values{operand}, indices, Values{updates}, dims, update)[0];
}

}  // namespace torch_tpu::hlo
