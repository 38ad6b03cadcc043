#pragma once
// Everything that a plug-in needs.
#include "sgd/registry.hpp"
#include "sgd/training_operator.hpp"
