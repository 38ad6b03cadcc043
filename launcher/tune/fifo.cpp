#include "launcher/tune/fifo.hpp"

namespace sgd::tune {

Decision Fifo::reported(const Report& report) {
  return {.trial = report.trial, .reason = Reason::kNoRule, .iteration = report.iteration};
}

}  // namespace sgd::tune
