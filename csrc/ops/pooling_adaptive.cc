// Adaptive pooling: window o of a dimension of size n split in m covers [floor(o n / m), ceil((o + 1) n / m)).
#include <algorithm>

#include "ops/indexing.h"
#include "ops/pooling.h"
#include "ops/promote.h"
#include "ops/stencil.h"

namespace torch_tpu::ops {
namespace {

struct Span {
  int64_t start, end;
};

std::vector<Span> spans(int64_t inputs, int64_t outputs) {
  std::vector<Span> result;
  for (int64_t o = 0; o < outputs; ++o) {
    result.push_back({o * inputs / outputs, ((o + 1) * inputs + outputs - 1) / outputs});
  }
  return result;
}

Stencil average_stencil(int64_t inputs, int64_t outputs) {
  Stencil stencil;
  stencil.inputs = inputs;
  for (const Span& span : spans(inputs, outputs)) {
    stencil.outputs.emplace_back();
    for (int64_t p = span.start; p < span.end; ++p) {
      stencil.outputs.back().push_back({p, 1.0 / static_cast<double>(span.end - span.start)});
    }
  }
  return stencil;
}

bool divides(const Shape& in, const Shape& out, int64_t dims) {
  for (size_t d = in.size() - dims; d < in.size(); ++d) {
    if (out[d] == 0 || in[d] % out[d] != 0) return false;
  }
  return true;
}

// Equal windows: the spatial dimensions split into (output, window) and the windows are reduced at once.
Value average_equal(Builder& b, Value x, const Shape& out, int64_t dims) {
  Shape split(x.shape().begin(), x.shape().end() - dims);
  Dims windows;
  int64_t count = 1;
  for (int64_t d = x.rank() - dims; d < x.rank(); ++d) {
    split.push_back(out[d]);
    windows.push_back(static_cast<int64_t>(split.size()));
    split.push_back(x.dim(d) / out[d]);
    count *= split.back();
  }
  Value sum = b.reduce_sum(b.reshape(x, split), windows);
  return b.div(sum, b.constant_int(sum.type(), count));
}

// _adaptive_avg_poolNd(self, output_size)
Rule adaptive_avg_pool(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value x = args.tensor(0);
    const Type& out = c.out();
    if (element_count(out.shape) == 0 || x.numel() == 0) return {b.zeros(out)};
    x = b.convert(x, compute_dtype(x.dtype()));
    if (divides(x.shape(), out.shape, dims)) return {b.convert(average_equal(b, x, out.shape, dims), out.dtype)};
    for (int64_t d = x.rank() - 1; d >= x.rank() - dims; --d) {
      x = apply_stencil(b, x, d, average_stencil(x.dim(d), out.shape[d]));
    }
    return {b.convert(x, out.dtype)};
  };
}

// _adaptive_avg_poolNd_backward(grad, self)
Rule adaptive_avg_pool_backward(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value grad = args.tensor(0);
    const Type& out = c.out();
    if (grad.numel() == 0 || element_count(out.shape) == 0) return {b.zeros(out)};
    grad = b.convert(grad, compute_dtype(out.dtype));
    for (int64_t d = grad.rank() - 1; d >= grad.rank() - dims; --d) {
      grad = apply_stencil(b, grad, d, average_stencil(out.shape[d], grad.dim(d)).transposed());
    }
    return {b.convert(grad, out.dtype)};
  };
}

// {value, position} maximum of the windows of one dimension. Windows shorter than the longest one repeat their last
// element: it cannot win again against itself.
Values max_dim(Builder& b, Value value, Value position, int64_t dim, int64_t outputs) {
  std::vector<Span> windows = spans(value.dim(dim), outputs);
  int64_t longest = 0;
  for (const Span& span : windows) longest = std::max(longest, span.end - span.start);
  std::vector<int64_t> positions;
  for (const Span& span : windows) {
    for (int64_t k = 0; k < longest; ++k) positions.push_back(std::min(span.start + k, span.end - 1));
  }
  Shape split = value.shape();
  split[dim] = outputs;
  split.insert(split.begin() + dim + 1, longest);
  auto windowed = [&](Value x) { return b.reshape(take_static(b, x, dim, positions), split); };
  Values inits = {b.min_value({value.dtype(), {}}), b.scalar_int(position.dtype(), -1)};
  auto body = [](Builder& rb, const Values& v) -> Values { return larger(rb, v[0], v[1], v[2], v[3]); };
  return b.reduce({windowed(value), windowed(position)}, inits, {dim + 1}, body);
}

// adaptive_max_poolNd(self, output_size)
Rule adaptive_max_pool(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value value = args.tensor(0);
    if (element_count(c.out().shape) == 0 || value.numel() == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
    Value position = spatial_positions(b, value.shape(), dims);
    for (int64_t d = value.rank() - 1; d >= value.rank() - dims; --d) {
      Values found = max_dim(b, value, position, d, c.out().shape[d]);
      value = found[0];
      position = found[1];
    }
    return {value, b.convert(position, c.out(1).dtype)};
  };
}

// adaptive_max_poolNd_backward(grad, self, indices)
Rule adaptive_max_pool_backward(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value grad = args.tensor(0);
    const Type& out = c.out();
    if (grad.numel() == 0 || element_count(out.shape) == 0) return {b.zeros(out)};
    grad = b.convert(grad, compute_dtype(out.dtype));
    Value sum = scatter_spatial(b, grad, args.tensor(2), {grad.dtype(), out.shape}, dims, /*add=*/true);
    return {b.convert(sum, out.dtype)};
  };
}

}  // namespace

void add_adaptive_pooling_rows(Rows& rows) {
  rows.push_back(Row{"aten::_adaptive_avg_pool2d", adaptive_avg_pool(2)});
  rows.push_back(Row{"aten::_adaptive_avg_pool3d", adaptive_avg_pool(3)});
  rows.push_back(Row{"aten::_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward(2)});
  rows.push_back(Row{"aten::_adaptive_avg_pool3d_backward", adaptive_avg_pool_backward(3)});
  rows.push_back(Row{"aten::adaptive_max_pool2d", adaptive_max_pool(2)});
  rows.push_back(Row{"aten::adaptive_max_pool3d", adaptive_max_pool(3)});
  rows.push_back(Row{"aten::adaptive_max_pool2d_backward", adaptive_max_pool_backward(2)});
  rows.push_back(Row{"aten::adaptive_max_pool3d_backward", adaptive_max_pool_backward(3)});
}

}  // namespace torch_tpu::ops
