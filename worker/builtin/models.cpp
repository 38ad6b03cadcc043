#include "worker/builtin/models.hpp"

#include "worker/builtin/models/factories.hpp"

namespace sgd::builtin {

std::map<std::string, ModelFactory> models() {
  return {{"fcn", make_fcn},
          {"lenet", make_lenet},
          {"resnet18", make_resnet},
          {"resnet34", make_resnet},
          {"resnet50", make_resnet},
          {"torchscript", make_torchscript},
          {"transformer", make_transformer}};
}

}  // namespace sgd::builtin
