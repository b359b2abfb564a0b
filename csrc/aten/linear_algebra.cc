// Linear algebra whose results depend on the strides of its input, or that raises: composed of ops that have rows.
//
// PyTorch's derivatives of det and slogdet reuse the LU factors of the forward and take them to be those of A^T where A
// is contiguous and real (its CPU and CUDA kernels avoid a copy that way). A rule sees no strides.
#include <ATen/ATen.h>
#include <ATen/ops/linalg_lstsq_native.h>
#include <torch/library.h>

#include <tuple>

namespace torch_tpu::aten {
namespace {

using at::Tensor;

bool factors_transpose(const Tensor& a) { return a.is_contiguous() && !a.is_complex(); }

std::tuple<Tensor, Tensor, Tensor> factors(const Tensor& a) {
  return at::linalg_lu_factor_ex(factors_transpose(a) ? a.mT() : a, /*pivot=*/true, /*check_errors=*/false);
}

void check_square(const Tensor& a, const char* name) {
  TORCH_CHECK(a.dim() >= 2, name, ": The input tensor A must have at least 2 dimensions.");
  TORCH_CHECK(a.size(-1) == a.size(-2), name, ": A must be batches of square matrices, but they are ", a.size(-2),
              " by ", a.size(-1), " matrices");
  TORCH_CHECK(a.is_floating_point() || a.is_complex(), name,
              ": Expected a floating point or complex tensor as input. Got ", a.scalar_type());
}

// det(P): -1 for every exchange of two different rows.
Tensor permutation_sign(const Tensor& pivots, at::ScalarType dtype) {
  const Tensor own = at::arange(1, pivots.size(-1) + 1, pivots.options());
  const Tensor odd = pivots.ne(own).sum(-1).remainder(2);
  return 1 - 2 * odd.to(dtype);
}

std::tuple<Tensor, Tensor, Tensor> det(const Tensor& a) {
  check_square(a, "linalg.det");
  auto [lu, pivots, info] = factors(a);
  Tensor result = lu.diagonal(0, -2, -1).prod(-1) * permutation_sign(pivots, lu.scalar_type());
  return {result, lu, pivots};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> slogdet(const Tensor& a) {
  check_square(a, "linalg.slogdet");
  auto [lu, pivots, info] = factors(a);
  const Tensor diagonal = lu.diagonal(0, -2, -1);
  Tensor sign = diagonal.sgn().prod(-1) * permutation_sign(pivots, lu.scalar_type());
  return {sign, diagonal.abs().log().sum(-1), lu, pivots};
}

Tensor cholesky(const Tensor& self, bool upper) {
  check_square(self, "cholesky");
  auto [l, info] = at::linalg_cholesky_ex(self, upper, /*check_errors=*/false);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return l;
}

// The driver "gels", which accelerators have and take by default: a has full rank. The others run on the CPU, and so do
// calls whose shapes are wrong: PyTorch's own checks are there.
bool has_full_rank_rule(const Tensor& a, const Tensor& b, std::optional<c10::string_view> driver) {
  return driver.value_or("gels") == "gels" && a.dim() >= 2 && a.scalar_type() == b.scalar_type() &&
         (a.is_floating_point() || a.is_complex()) && a.numel() > 0 && b.numel() > 0 &&
         ((b.dim() == a.dim() && b.size(-2) == a.size(-2)) ||
          (b.dim() == a.dim() - 1 && b.sizes() == a.sizes().slice(0, a.dim() - 1)));
}

// (solution, residuals, rank, singular_values); the last two are empty.
std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond,
                                                 std::optional<c10::string_view> driver) {
  if (!has_full_rank_rule(a, b, driver)) return at::native::linalg_lstsq(a, b, rcond, driver);
  const bool vector = b.dim() < a.dim();
  const Tensor right = vector ? b.unsqueeze(-1) : b;
  const int64_t rows = a.size(-2), columns = a.size(-1);
  const auto real = at::toRealValueType(a.scalar_type());
  Tensor x, residuals = at::empty({0}, a.options().dtype(real));
  if (rows >= columns) {
    const auto [q, r] = at::linalg_qr(a, "reduced");
    x = at::linalg_solve_triangular(r, q.mH().matmul(right), /*upper=*/true);
    if (rows > columns) residuals = (right - a.matmul(x)).abs().square().sum(-2);
  } else {
    // The solution of least norm: a = r^H q^H with a^H = q r.
    const auto [q, r] = at::linalg_qr(a.mH(), "reduced");
    x = q.matmul(at::linalg_solve_triangular(r.mH(), right, /*upper=*/false));
  }
  return {vector ? x.squeeze(-1) : x, residuals, at::empty({0}, a.options().dtype(at::kLong)),
          at::empty({0}, a.options().dtype(real))};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_linalg_det", &det);
  m.impl("_linalg_slogdet", &slogdet);
  m.impl("cholesky", &cholesky);
  m.impl("linalg_lstsq", &lstsq);
}

}  // namespace
}  // namespace torch_tpu::aten
