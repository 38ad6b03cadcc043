#pragma once
// Collectives between processes of one host as a plain C library, for programs in any language: no C++ name, type or
// exception crosses this border, and nothing of LibTorch is behind it. sgd_launch_ddp.py is its Python side.
//
// A group is one memory file that all its ranks map. One rank creates it; how the others get the descriptor is the
// caller's business. Every rank starts the same operations in the same order; an operation is started once and then
// advanced until it is done, by one thread at a time, so that a caller can leave it to another thread, or look at
// signals in between. sgdc_abort() may come from any thread until sgdc_close().
//
// Functions that can fail give SGDC_FAILED; the text is in sgdc_error(), or in `error` where no group exists yet.
// After a failure a group can only be closed.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SGDC_VERSION 1

enum { SGDC_DONE = 0, SGDC_PENDING = 1, SGDC_FAILED = -1 };

enum SgdcOperation {
  SGDC_ALL_REDUCE = 1,      ///< inputs[0] and outputs[0], which may be the same: `count` elements.
  SGDC_REDUCE = 2,          ///< The same; outputs[0] is written at the root only.
  SGDC_BROADCAST = 3,       ///< inputs[0] at the root, outputs[0] elsewhere.
  SGDC_ALL_GATHER = 4,      ///< inputs[0]; outputs[rank], each of `count` elements.
  SGDC_GATHER = 5,          ///< The same; outputs are written at the root only.
  SGDC_SCATTER = 6,         ///< inputs[rank] at the root; outputs[0].
  SGDC_REDUCE_SCATTER = 7,  ///< inputs[rank], each of `count` elements; outputs[0].
  SGDC_ALL_TO_ALL = 8,      ///< inputs[rank] and outputs[rank], of input_counts[rank] and output_counts[rank] elements.
  SGDC_BARRIER = 9,
};

enum SgdcType {
  SGDC_UINT8 = 0,
  SGDC_INT8 = 1,
  SGDC_INT16 = 2,
  SGDC_INT32 = 3,
  SGDC_INT64 = 4,
  SGDC_FLOAT16 = 5,
  SGDC_BFLOAT16 = 6,
  SGDC_FLOAT32 = 7,
  SGDC_FLOAT64 = 8,
  SGDC_BOOL = 9,  ///< SUM and MAX are "or", PRODUCT and MIN are "and".
};

/// Applied in rank order, so that every rank gets the same bits. 16-bit floats are added up as 32-bit ones and rounded
/// once. A NaN of any rank makes MIN and MAX NaN.
enum SgdcReduction {
  SGDC_SUM = 0,
  SGDC_AVERAGE = 1,  ///< Floating-point types only: the sum, divided by the number of ranks.
  SGDC_PRODUCT = 2,
  SGDC_MIN = 3,
  SGDC_MAX = 4,
  SGDC_BIT_AND = 5,  ///< These three: integers and bool.
  SGDC_BIT_OR = 6,
  SGDC_BIT_XOR = 7,
};

typedef struct SgdcRequest {
  uint32_t operation;
  uint32_t type;
  uint32_t reduction;
  int32_t root;
  uint64_t count;
  const void* const* inputs;  ///< This and what it points to must live until the operation is done.
  void* const* outputs;
  const uint64_t* input_counts;  ///< Of SGDC_ALL_TO_ALL only, as the next.
  const uint64_t* output_counts;
} SgdcRequest;

typedef struct SgdcGroup SgdcGroup;

int sgdc_version(void);

/// A memory file without a name for `size` ranks, stamped with `token`; the descriptor, or SGDC_FAILED.
int sgdc_create(int size, uint64_t token, char* error, size_t error_bytes);

/// Maps `fd`, which can be closed then. `pids` has every rank's process: an end of one that is waited for is noticed.
/// `own_cores`: each rank has a core, so waiting may spin for a while. Null on failure.
SgdcGroup* sgdc_open(int fd, uint64_t token, int rank, int size, const int32_t* pids, int own_cores, char* error,
                     size_t error_bytes);

/// How long an operation waits for another rank. The default is 30 minutes.
void sgdc_set_timeout(SgdcGroup* group, int64_t milliseconds);

/// Starts an operation and advances it for at most `microseconds` of waiting. SGDC_DONE, SGDC_PENDING or SGDC_FAILED.
int sgdc_start(SgdcGroup* group, const SgdcRequest* request, int64_t microseconds);
int sgdc_advance(SgdcGroup* group, int64_t microseconds);
const char* sgdc_error(const SgdcGroup* group);

/// Every operation of every rank, in progress or later, fails at once with this reason.
void sgdc_abort(SgdcGroup* group, const char* reason);
/// Tells the others that this rank has left, and unmaps. No other call may be in progress.
void sgdc_close(SgdcGroup* group);

#ifdef __cplusplus
}
#endif
