// Which formats a torch dtype has on the host and on the card, and what its values are limited to.
#pragma once

#include <string>

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include "spyre/card.h"

namespace spyre {

struct DtypeInfo {
  c10::ScalarType dtype;
  DataFormat host;    ///< format of an element in host memory; INVALID if transfers cannot read it
  DataFormat device;  ///< format in device memory; INVALID if no spyre tensor can have this dtype
  card::Narrow narrow;  ///< applied when a value of another dtype becomes this one
};

/// Never fails: dtypes that nothing here knows have INVALID formats.
const DtypeInfo& dtype_info(c10::ScalarType dtype);

/// Format of host elements; throws for dtypes that cannot be transferred (complex, quantized, ...).
DataFormat host_format(c10::ScalarType dtype);

/// Device format of a spyre tensor of this dtype; throws if there is none.
DataFormat device_format(c10::ScalarType dtype);

/// What a number becomes that tensors of a dtype are filled or computed with. The card's format has
/// less range than bfloat16: a finite number stays finite, as masks of the dtype's least value
/// need.
double number_for(c10::ScalarType dtype, double number);

/// What elements of a dtype lie between on the card, which holds an int64 in 32 bits.
struct Range {
  c10::Scalar least, most;
};
Range range_of(c10::ScalarType dtype);

/// "float16": the name Python users know.
std::string dtype_name(c10::ScalarType dtype);

/// One warning per process for int64 tensors, whose device format has 32 bits.
void warn_downcast(c10::ScalarType dtype);
bool get_downcast_warning();
void set_downcast_warning(bool enabled);

}  // namespace spyre
