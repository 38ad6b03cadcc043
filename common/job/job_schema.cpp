#include "common/job/job_schema.hpp"

#include "common/job/load.hpp"

namespace sgd::job {

const json::Schema& job_schema() {
  static const json::Schema schema(nlohmann::json::parse(kSchemaText));
  return schema;
}

}  // namespace sgd::job
