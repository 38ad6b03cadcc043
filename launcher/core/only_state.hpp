#pragma once
// A machine that can be saved is derived from its State, an aggregate, and adds nothing to it.

namespace sgd::core {

/// A field of Machine's own would not be saved. The last field of a State fills it up to its end (eight bytes wide, or
/// a container), or one could hide in what is left.
template <class Machine>
constexpr bool has_only_state() {
  struct Probe : Machine::State {
    char more;
  };
  return sizeof(Machine) == sizeof(typename Machine::State) && sizeof(Probe) > sizeof(typename Machine::State);
}

}  // namespace sgd::core
