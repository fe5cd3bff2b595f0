// Results of loads: of asynchronous ones those that the compiler has renamed, of vectors those that nobody uses.
#pragma once

#include "text/ast.h"

namespace ptxrun {

// nvcc copies the results of an inline tcgen05.ld into registers of their type, and may move these copies before the
// tcgen05.wait::ld that the program waits with; the assembler sees one register. So does this: a result whose only use
// is such a copy gets the copy's name, and the copy goes. Elements of a vector load that nobody uses become `_`.
void name_load_results(ast::Function& function);

}  // namespace ptxrun
