#pragma once
// Identities. An id is never an address and never reused; a generation fences
// everything that an earlier start of the worker group still sends.

#include <compare>
#include <cstdint>
#include <string>

namespace sgd {

/// Name of one execution of a job, for example "fashion-mnist-20261121-101500-4f2a".
using RunId = std::string;
/// Name of a node; "localhost" where a run has one machine.
using NodeId = std::string;
/// Counts the starts of a run's worker group; the first is 1, 0 is "none yet".
using Generation = std::uint64_t;
/// Which of two generations that bear one number: a store that has lost its end gives a number again. It is the time of
/// the coordinator's decision by its own clock, in ns; 0: not known.
using GenerationUid = std::int64_t;
/// Dense number of a worker in its generation, 0 .. world_size-1.
using Rank = int;
/// Random id of one agent process; a node that comes back is a new incarnation.
using Incarnation = std::uint64_t;

}  // namespace sgd
