// QR factors and eigenvalues of Hermitian matrices, by the engines' own expansions (XLA's Householder reflectors and
// cyclic Jacobi rotations), which exist on every platform.
#include <algorithm>

#include "ops/linalg.h"

namespace torch_tpu::ops {
namespace {

Shape batch_of(Value x) { return {x.shape().begin(), x.shape().end() - 2}; }

Shape with(Shape shape, std::initializer_list<int64_t> more) {
  shape.insert(shape.end(), more);
  return shape;
}

struct Reflectors {
  Value packed, taus;  // as LAPACK's geqrf
};

Reflectors reflectors(Context& c, Value a) {
  const Type taus{a.dtype(), with(batch_of(a), {std::min(a.dim(-2), a.dim(-1))})};
  Values r = c.b.custom_call("Qr", {a}, {a.type(), taus}, "");
  return {r[0], r[1]};
}

// The first columns of H(0) H(1) ...: as many as `packed` has.
Value product(Context& c, Value packed, Value taus) {
  return c.b.custom_call("ProductOfElementaryHouseholderReflectors", {packed, taus}, {packed.type()}, "")[0];
}

// (self) -> a, tau
Values geqrf(Context& c, const Args& args) {
  if (args.tensor(0).numel() == 0) return {c.b.zeros(c.out(0)), c.b.zeros(c.out(1))};
  Reflectors r = reflectors(c, args.tensor(0));
  return {r.packed, r.taus};
}

// (input, tau)
Values householder_product(Context& c, const Args& args) {
  const Value a = args.tensor(0);
  if (a.numel() == 0) return {a};
  if (args.tensor(1).numel() == 0) {
    Value eye = identity(c, a.dtype(), batch_of(a), a.dim(-2));
    return {columns_of(c, eye, 0, a.dim(-1))};
  }
  return {product(c, a, args.tensor(1))};
}

// x cut or filled with zero columns.
Value to_columns(Context& c, Value x, int64_t n) {
  if (x.dim(-1) >= n) return columns_of(c, x, 0, n);
  Dims low(x.rank(), 0), high(x.rank(), 0);
  high.back() = n - x.dim(-1);
  return c.b.pad(x, c.b.zeros({x.dtype(), {}}), low, high);
}

// (A, mode) -> Q, R
Values qr(Context& c, const Args& args) {
  const Value a = args.tensor(0);
  const int64_t m = a.dim(-2), n = a.dim(-1), k = std::min(m, n);
  const std::string mode = args.string_or(1, "reduced");
  if (a.numel() == 0) {
    Value q = c.b.zeros(c.out(0));
    // The complete factor of a matrix without columns.
    if (q.numel() > 0 && q.dim(-1) == q.dim(-2)) q = identity(c, a.dtype(), batch_of(a), m);
    return {q, c.b.zeros(c.out(1))};
  }
  Reflectors r = reflectors(c, a);
  const int64_t height = mode == "complete" ? m : k;
  Value upper = triangle(c, r.packed, /*lower=*/false);
  if (mode == "r") return {c.b.zeros(c.out(0)), rows_of(c, upper, 0, k)};
  return {product(c, to_columns(c, r.packed, height), r.taus), rows_of(c, upper, 0, height)};
}

// (self, tau, other, left, transpose): Q other, or other Q, where Q is the whole product of the reflectors.
Values ormqr(Context& c, const Args& args) {
  const Value packed = args.tensor(0), other = args.tensor(2);
  if (packed.numel() == 0 || args.tensor(1).numel() == 0 || other.numel() == 0) return {other};
  Value q = product(c, to_columns(c, packed, packed.dim(-2)), args.tensor(1));
  if (args.flag_or(4, false)) q = adjoint(c, q);
  return {args.flag_or(3, true) ? matrix_product(c, q, other) : matrix_product(c, other, q)};
}

// Measured: the rotations stop at a residual of 1e-8, which is no double precision; and the embedded engine needs 0.1 s
// for n = 100, 1.2 s for n = 200, where LAPACK on the host takes milliseconds.
bool engine_solves(Context& c, Value a) {
  const bool single = a.dtype() == DType::kF32 || a.dtype() == DType::kC64;
  return single && (c.platform == Platform::kTpu || a.dim(-1) <= 64);
}

// Eigenvalues ascending, eigenvectors in columns. (A, UPLO, compute_v)
Values eigh(Context& c, const Args& args) {
  Value a = args.tensor(0);
  if (a.numel() == 0) return {c.b.zeros(c.out(0)), c.b.zeros(c.out(1))};
  if (!engine_solves(c, a))
    return {c.b.fail(ErrorCode::kNotImplemented, c.op + ": no rule for this dtype and size"), c.b.zeros(c.out(1))};
  const bool lower = args.string_or(1, "L") != "U" && args.string_or(1, "L") != "u";
  // The engine is given the whole matrix: what the other triangle holds must not matter.
  Value full = hermitian(c, a, lower);
  Values r = c.b.custom_call("Eigh", {full}, {a.type(), c.out(0)}, "backend_config = \"1,1,100,1e-7\"");
  return {r[1], element_count(c.out(1).shape) == 0 ? c.b.zeros(c.out(1)) : r[0]};
}

}  // namespace

void add_orthogonal_rows(Rows& rows) {
  rows.push_back({"aten::geqrf", geqrf});
  rows.push_back({"aten::linalg_qr", qr});
  rows.push_back({"aten::linalg_householder_product", householder_product});
  rows.push_back({"aten::ormqr", ormqr});
  rows.push_back({"aten::_linalg_eigh", eigh});
}

}  // namespace torch_tpu::ops
