// What a worker refuses: one name twice, a built-in one's name, and properties that are none.
#include <sgd/sgd.hpp>

namespace {
class Nothing : public sgd::TrainingOperator {};
}  // namespace

SGD_REGISTER_OPERATOR("nothing", Nothing, "{}");
SGD_REGISTER_OPERATOR("nothing", Nothing, "{}");
SGD_REGISTER_OPERATOR("supervised", Nothing, "{}");
SGD_REGISTER_OPERATOR("odd", Nothing, R"({"rate": {"type": "number", "minimum": 1, "default": 0}})");
