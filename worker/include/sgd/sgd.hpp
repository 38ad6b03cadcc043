#pragma once
// Everything that a plug-in needs.
#include "sgd/creators.hpp"
#include "sgd/data.hpp"
#include "sgd/metrics.hpp"
#include "sgd/model.hpp"
#include "sgd/registry.hpp"
#include "sgd/session.hpp"
#include "sgd/setup.hpp"
#include "sgd/step.hpp"
#include "sgd/training_operator.hpp"
