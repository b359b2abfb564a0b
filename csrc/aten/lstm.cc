// nn.LSTM as one program for each layer and direction, and one for its gradient.
//
// PyTorch composes an LSTM of the products and cells of its steps: hundreds of small programs. Where the layer op does
// not fit (projections, autocast, tensors under functorch transforms, modes or forward AD, sizes that PyTorch refuses)
// PyTorch's composition runs as before, and says what is wrong where something is.
#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace torch_tpu::aten {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;
using MaybeTensor = std::optional<Tensor>;

TORCH_LIBRARY_FRAGMENT(tpu, m) {
  m.def(
      "lstm_layer(Tensor x, Tensor h0, Tensor c0, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, bool reverse, "
      "bool keep) -> (Tensor output, Tensor h_n, Tensor c_n, Tensor gates, Tensor cells)");
  m.def(
      "lstm_layer_backward(Tensor? grad_output, Tensor? grad_h, Tensor? grad_c, Tensor x, Tensor h0, Tensor c0, "
      "Tensor w_ih, Tensor w_hh, Tensor gates, Tensor cells, bool reverse, bool[7] mask) -> (Tensor x, Tensor h0, "
      "Tensor c0, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh)");
}

struct Layer {
  Tensor x, h0, c0, w_ih, w_hh;
  MaybeTensor b_ih, b_hh;
  bool reverse;
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(const Layer& layer, bool keep) {
  using Signature = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                                       const Tensor&, const Tensor&, const MaybeTensor&,
                                                                       const MaybeTensor&, bool, bool);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tpu::lstm_layer", "").typed<Signature>();
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(layer.x, layer.h0, layer.c0, layer.w_ih, layer.w_hh, layer.b_ih, layer.b_hh, layer.reverse, keep);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Gradients backward(const variable_list& grads, const Layer& layer, const Tensor& gates, const Tensor& cells,
                   std::array<bool, 7> mask) {
  using Signature =
      Gradients(const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, const Tensor&, const Tensor&, const Tensor&,
                const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool, std::array<bool, 7>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("tpu::lstm_layer_backward", "").typed<Signature>();
  auto maybe = [](const Tensor& t) { return t.defined() ? MaybeTensor(t) : std::nullopt; };
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(maybe(grads[0]), maybe(grads[1]), maybe(grads[2]), layer.x, layer.h0, layer.c0, layer.w_ih, layer.w_hh,
                 gates, cells, layer.reverse, mask);
}

const c10::OperatorHandle& lstm_op() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::lstm", "input");
  return op;
}

void composed(Stack* stack) { lstm_op().callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack); }

// The gradient through PyTorch's composition, for those who differentiate it again or batch it.
variable_list differentiable_backward(const variable_list& grads, const variable_list& inputs, bool reverse,
                                      std::array<bool, 7> mask) {
  const bool create_graph = at::GradMode::is_enabled();
  at::AutoGradMode recording(true);
  // Views of the inputs: a gradient must end there, although one input may have been computed from another.
  variable_list own, wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    own.push_back(create_graph ? inputs[i].view_as(inputs[i]) : inputs[i].detach().requires_grad_(mask[i]));
    if (mask[i]) wanted.push_back(own.back());
  }
  const bool biases = own.size() == 7;
  const std::vector<Tensor> state{own[1].unsqueeze(0), own[2].unsqueeze(0)};
  Stack stack{reverse ? own[0].flip(0) : own[0],
              c10::List<Tensor>(state),
              c10::List<Tensor>(std::vector<Tensor>(own.begin() + 3, own.end())),
              biases,
              int64_t{1},
              0.0,
              true,
              false,
              false};
  composed(&stack);
  variable_list results{stack[0].toTensor(), stack[1].toTensor().squeeze(0), stack[2].toTensor().squeeze(0)};
  if (reverse) results[0] = results[0].flip(0);
  variable_list roots, root_grads;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!grads[i].defined()) continue;
    roots.push_back(results[i]);
    root_grads.push_back(grads[i]);
  }
  const variable_list found = torch::autograd::grad(roots, wanted, root_grads, /*retain_graph=*/create_graph,
                                                    create_graph, /*allow_unused=*/true);
  variable_list all(8);
  size_t next = 0;
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i]) all[i] = found[next++];
  return all;
}

struct LayerFunction : torch::autograd::Function<LayerFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& h0, const Tensor& c0,
                               const Tensor& w_ih, const Tensor& w_hh, const MaybeTensor& b_ih, const MaybeTensor& b_hh,
                               bool reverse) {
    auto [output, h_n, c_n, gates, cells] = aten::forward({x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse}, true);
    // Not the output: as with PyTorch's composition, it may be changed in place.
    context->save_for_backward({x, h0, c0, w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), gates, cells});
    context->saved_data["reverse"] = reverse;
    context->set_materialize_grads(false);
    return {output, h_n, c_n};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor& t) { return t.defined(); })) return variable_list(8);
    const variable_list saved = context->get_saved_variables();
    const bool reverse = context->saved_data["reverse"].toBool();
    std::array<bool, 7> mask{};
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = saved[i].defined() && context->needs_input_grad(i);
    const bool batched = std::any_of(grads.begin(), grads.end(),
                                     [](const Tensor& t) { return t.defined() && at::isTensorSubclassLike(t); });
    if (at::GradMode::is_enabled() || batched)
      return differentiable_backward(grads, {saved.begin(), saved.begin() + 7}, reverse, mask);
    const Layer layer{saved[0], saved[1], saved[2], saved[3], saved[4], {}, {}, reverse};
    auto [x, h0, c0, w_ih, w_hh, b_ih, b_hh] = aten::backward(grads, layer, saved[7], saved[8], mask);
    return {x, h0, c0, w_ih, w_hh, b_ih, b_hh, {}};
  }
};

// output, h_n, c_n
std::array<Tensor, 3> run(const Layer& layer, bool differentiable) {
  const auto wants = [](const Tensor& t) { return t.requires_grad(); };
  if (differentiable && at::GradMode::is_enabled() &&
      (wants(layer.x) || wants(layer.h0) || wants(layer.c0) || wants(layer.w_ih) || wants(layer.w_hh) ||
       (layer.b_ih && (wants(*layer.b_ih) || wants(*layer.b_hh))))) {
    variable_list results = LayerFunction::apply(layer.x, layer.h0, layer.c0, layer.w_ih, layer.w_hh, layer.b_ih,
                                                 layer.b_hh, layer.reverse);
    return {results[0], results[1], results[2]};
  }
  auto [output, h_n, c_n, gates, cells] = forward(layer, /*keep=*/false);
  return {output, h_n, c_n};
}

// aten::lstm.input's arguments.
struct Lstm {
  Tensor input;
  std::vector<Tensor> hx, params;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional, batch_first;

  explicit Lstm(const Stack& stack)
      : input(stack[0].toTensor()),
        hx(stack[1].toTensorVector()),
        params(stack[2].toTensorVector()),
        has_biases(stack[3].toBool()),
        num_layers(stack[4].toInt()),
        dropout(stack[5].toDouble()),
        train(stack[6].toBool()),
        bidirectional(stack[7].toBool()),
        batch_first(stack[8].toBool()) {}

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t count() const { return num_layers * directions(); }
  // Parameters of one layer and direction.
  size_t stride() const { return has_biases ? 4 : 2; }
};

bool is_plain(const Tensor& t, const Tensor& like) {
  return t.defined() && t.is_privateuseone() && t.device() == like.device() && t.layout() == at::kStrided &&
         t.scalar_type() == like.scalar_type() && !at::isTensorSubclassLike(t) && !t._fw_grad(0).defined();
}

bool sizes_fit(const Lstm& a) {
  if (a.input.dim() != 3 || a.input.numel() == 0 || a.hx[0].dim() != 3 || a.num_layers < 1) return false;
  const int64_t batch = a.input.size(a.batch_first ? 0 : 1), width = a.hx[0].size(2);
  const std::vector<int64_t> state{a.count(), batch, width};
  if (width == 0 || a.hx[0].sizes() != state || a.hx[1].sizes() != state) return false;
  for (size_t i = 0; i < a.params.size(); ++i) {
    const size_t kind = i % a.stride();
    const bool first_layer = i < a.stride() * a.directions();
    const int64_t inputs = kind == 1 ? width : first_layer ? a.input.size(2) : width * a.directions();
    const bool fits = kind < 2 ? a.params[i].sizes() == at::IntArrayRef({4 * width, inputs})
                               : a.params[i].sizes() == at::IntArrayRef({4 * width});
    if (!fits) return false;
  }
  return true;
}

bool fits(const Lstm& a) {
  const auto type = a.input.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kHalf && type != at::kBFloat16) return false;
  // A projection is one more parameter.
  if (a.hx.size() != 2 || a.params.size() != a.stride() * a.count()) return false;
  const auto plain = [&](const Tensor& t) { return is_plain(t, a.input); };
  return !at::autocast::is_autocast_enabled(at::kPrivateUse1) && plain(a.input) &&
         std::all_of(a.hx.begin(), a.hx.end(), plain) && std::all_of(a.params.begin(), a.params.end(), plain) &&
         sizes_fit(a);
}

// One state for each layer and direction; views that cost no program where there is one.
std::vector<Tensor> unstacked(const Tensor& state) {
  return state.size(0) == 1 ? std::vector<Tensor>{state.squeeze(0)} : state.unbind(0);
}
Tensor stacked(const std::vector<Tensor>& states) {
  return states.size() == 1 ? states[0].unsqueeze(0) : at::stack(states);
}

void layer_by_layer(const Lstm& a, bool differentiable, Stack* stack) {
  std::vector<Tensor> h = unstacked(a.hx[0]), c = unstacked(a.hx[1]);
  Tensor x = a.batch_first ? a.input.transpose(0, 1) : a.input;
  for (int64_t i = 0; i < a.num_layers; ++i) {
    std::vector<Tensor> outputs;
    for (int64_t j = 0; j < a.directions(); ++j) {
      const int64_t k = i * a.directions() + j;
      const Tensor* p = &a.params[k * a.stride()];
      const Layer layer{x,
                        h[k],
                        c[k],
                        p[0],
                        p[1],
                        a.has_biases ? MaybeTensor(p[2]) : std::nullopt,
                        a.has_biases ? MaybeTensor(p[3]) : std::nullopt,
                        j == 1};
      auto [output, h_n, c_n] = run(layer, differentiable);
      outputs.push_back(output);
      h[k] = h_n;
      c[k] = c_n;
    }
    x = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 2);
    if (a.dropout != 0 && a.train && i + 1 < a.num_layers) x = at::dropout(x, a.dropout, /*train=*/true);
  }
  stack->clear();
  stack->emplace_back(a.batch_first ? x.transpose(0, 1) : x);
  stack->emplace_back(stacked(h));
  stack->emplace_back(stacked(c));
}

template <bool kDifferentiable>
void lstm(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const Lstm arguments(*stack);
  if (fits(arguments))
    layer_by_layer(arguments, kDifferentiable, stack);
  else
    composed(stack);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("lstm.input", torch::CppFunction::makeFromBoxedFunction<&lstm<true>>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("lstm.input", torch::CppFunction::makeFromBoxedFunction<&lstm<false>>());
}

}  // namespace
}  // namespace torch_tpu::aten
