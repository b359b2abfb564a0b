// Average pooling and its backward as windowed sums divided by the number of elements that count.
#include <algorithm>

#include "ops/pooling.h"
#include "ops/promote.h"

namespace torch_tpu::ops {
namespace {

struct Average {
  PoolWindow window;
  bool count_include_pad;
  int64_t divisor_override;  // 0: none
};

// How many elements each window of one dimension counts.
std::vector<double> window_counts(const Average& a, int64_t i, int64_t size, int64_t outputs) {
  std::vector<double> counts;
  for (int64_t o = 0; o < outputs; ++o) {
    int64_t start = o * a.window.stride[i] - a.window.padding[i];
    int64_t end = std::min(start + a.window.kernel[i], size + a.window.padding[i]);
    if (!a.count_include_pad) {
      start = std::max<int64_t>(start, 0);
      end = std::min(end, size);
    }
    counts.push_back(static_cast<double>(std::max<int64_t>(end - start, 1)));
  }
  return counts;
}

// Divides x, whose spatial shape is that of the pooled result, by the counts.
Value divide_by_counts(Builder& b, Value x, const Average& a, const Shape& in) {
  int64_t dims = a.window.dims(), leading = x.rank() - dims;
  if (a.divisor_override != 0) return b.div(x, b.constant_int(x.type(), a.divisor_override));
  double uniform = 1;
  Value product;
  for (int64_t i = 0; i < dims; ++i) {
    std::vector<double> counts = window_counts(a, i, in[leading + i], x.dim(leading + i));
    if (std::all_of(counts.begin(), counts.end(), [&](double v) { return v == counts[0]; })) {
      uniform *= counts[0];
      continue;
    }
    std::vector<int64_t> whole(counts.begin(), counts.end());
    Value vector = b.convert(b.vector_int(DType::kI64, whole), x.dtype());
    Value wide = b.broadcast_in_dim(vector, x.shape(), {leading + i});
    product = product ? b.mul(product, wide) : wide;
  }
  Value constant = b.constant_int(x.type(), static_cast<int64_t>(uniform));
  return b.div(x, product ? b.mul(product, constant) : constant);
}

// avg_poolNd(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
Rule avg_pool(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value x = args.tensor(0);
    const Type& out = c.out();
    if (element_count(out.shape) == 0) return {b.zeros(out)};
    PoolWindow w = pool_window(dims, args.ints(1), args.ints_or(2, {}), args.ints_or(3, {0}), {1});
    Average a{w, args.flag_or(5, true), args.integer_or(6, 0)};
    Value wide = b.convert(x, compute_dtype(x.dtype()));
    auto rank = static_cast<size_t>(x.rank());
    hlo::Window window{Dims(rank, 1), Dims(rank, 1), Dims(rank, 1), Dims(rank, 1), Dims(rank, 0), Dims(rank, 0)};
    for (int64_t i = 0; i < dims; ++i) {
      int64_t dim = x.rank() - dims + i;
      window.dims[dim] = w.kernel[i];
      window.strides[dim] = w.stride[i];
      window.pad_low[dim] = w.padding[i];
      int64_t reach = (out.shape[dim] - 1) * w.stride[i] + w.kernel[i];
      window.pad_high[dim] = std::max<int64_t>(0, reach - w.padding[i] - x.dim(dim));
    }
    Value sum = b.reduce_window(wide, b.scalar_int(wide.dtype(), 0), window, "add");
    return {b.convert(divide_by_counts(b, sum, a, x.shape()), out.dtype)};
  };
}

// avg_poolNd_backward(grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override): each
// input sums the quotients of the windows that cover it, a window of the same size over the spread gradient.
Rule avg_pool_backward(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    const Type& out = c.out();
    Value grad = args.tensor(0);
    if (grad.numel() == 0 || element_count(out.shape) == 0) return {b.zeros(out)};
    PoolWindow w = pool_window(dims, args.ints(2), args.ints_or(3, {}), args.ints_or(4, {0}), {1});
    Average a{w, args.flag_or(6, true), args.integer_or(7, 0)};
    grad = divide_by_counts(b, b.convert(grad, compute_dtype(out.dtype)), a, out.shape);
    auto rank = static_cast<size_t>(grad.rank());
    Dims low(rank, 0), high(rank, 0), interior(rank, 0);
    hlo::Window window{Dims(rank, 1), Dims(rank, 1), Dims(rank, 1), Dims(rank, 1), Dims(rank, 0), Dims(rank, 0)};
    for (int64_t i = 0; i < dims; ++i) {
      int64_t dim = grad.rank() - dims + i;
      window.dims[dim] = w.kernel[i];
      interior[dim] = w.stride[i] - 1;
      low[dim] = w.kernel[i] - 1 - w.padding[i];
      int64_t spread = (grad.dim(dim) - 1) * w.stride[i] + 1;
      high[dim] = out.shape[dim] + w.kernel[i] - 1 - spread - low[dim];
    }
    Value zero = b.scalar_int(grad.dtype(), 0);
    Value sum = b.reduce_window(b.pad(grad, zero, low, high, interior), zero, window, "add");
    return {b.convert(sum, out.dtype)};
  };
}

}  // namespace

void add_average_pooling_rows(Rows& rows) {
  rows.push_back(Row{"aten::avg_pool2d", avg_pool(2)});
  rows.push_back(Row{"aten::avg_pool3d", avg_pool(3)});
  rows.push_back(Row{"aten::avg_pool2d_backward", avg_pool_backward(2)});
  rows.push_back(Row{"aten::avg_pool3d_backward", avg_pool_backward(3)});
}

}  // namespace torch_tpu::ops
