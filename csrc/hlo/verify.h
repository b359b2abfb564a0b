// Checks the attribute names of a module's text.
//
// The engines accept unknown attributes in silence (engine.md, part I section 1), so that a misspelled optional one
// would change nothing but the result. Tests send what they emit through this table.
#pragma once

#include <string_view>

#include "base/error.h"

namespace torch_tpu::hlo {

// Fails on an operation that the table does not know, on an attribute that its operation does not have, and on a
// missing required one: `stablehlo.slice: attribute, got <stride>, expected <one of start_indices, ...>`.
// `module` is text in generic form, as Builder::finish writes it.
Status verify_attributes(std::string_view module);

}  // namespace torch_tpu::hlo
