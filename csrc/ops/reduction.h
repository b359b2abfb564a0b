// The families that reductions and scans are made of.
#pragma once

#include <functional>

#include "ops/pointwise.h"

namespace torch_tpu::ops {

// Reduces x (already in the dtype that the result computes in) over `dims`, which are removed. An empty list (a 0-d
// operand) leaves the shape alone.
using ReductionBody = std::function<Expr(Context&, Expr x, const Dims& dims)>;

// The dims named by argument `position` (int, int[], absent or empty: all of them); -1: all of them.
Dims reduced_dims(const Args& args, int position, int64_t rank);
// Argument 0 reduced over the dims of argument `position`; keepdim and the final dtype follow from the inferred type.
Rule reduction(int position, ReductionBody body);
// The same with argument 0 left in its own compute dtype.
Rule reduction_exact(int position, ReductionBody body);
// x in the result's shape and dtype.
Value finish(Context& c, Expr x, size_t out = 0);

Expr sum(Expr x, const Dims& dims);
Expr product(Expr x, const Dims& dims);
Expr largest(Expr x, const Dims& dims);  // NaN if there is one
Expr smallest(Expr x, const Dims& dims);
Expr any(Expr x, const Dims& dims);  // over bools
Expr all(Expr x, const Dims& dims);
Expr mean(Expr x, const Dims& dims);
// The number of elements reduced into one, as a 0-d value of x's (real) dtype.
Expr count(Expr x, const Dims& dims);
// Gives a reduced value its dims back and broadcasts it to x's shape.
Expr spread(Expr reduced, Expr x, const Dims& dims);
// i64 position along `dim` of the first element equal to `extreme` (x reduced over dim; NaN equals NaN).
Expr first_position(Expr x, Expr extreme, int64_t dim);

// Inclusive scan along dim. `combine` is associative and receives (earlier, later) values of one shape, which need not
// be that of xs. `identities` are 0-d values that leave a later operand unchanged.
using ScanBody = std::function<Exprs(const Exprs& earlier, const Exprs& later)>;
Exprs scan(Context& c, Exprs xs, const Values& identities, int64_t dim, const ScanBody& combine);
Expr running_sum(Context& c, Expr x, int64_t dim);

void add_sum_rows(Rows& rows);
void add_extreme_rows(Rows& rows);
void add_moment_rows(Rows& rows);
void add_scan_rows(Rows& rows);
void add_histogram_rows(Rows& rows);

}  // namespace torch_tpu::ops
