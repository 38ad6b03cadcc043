// A JSON value that its copies share.

#include "common/json/shared.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using Json = nlohmann::json;

TEST_CASE("shared JSON: copies are one value, until one of them changes") {
  SharedJson one = Json{{"name", "a"}};
  const SharedJson copy = one;
  CHECK(&*copy == &*one);
  one.edit()["name"] = "b";
  CHECK(copy->at("name") == "a");
  CHECK(one->at("name") == "b");
  CHECK_FALSE(one == copy);
}

TEST_CASE("shared JSON: what nobody shares is changed where it is") {
  SharedJson one = Json{{"name", "a"}};
  const Json* before = &*one;
  one.edit()["name"] = "b";
  CHECK(&*one == before);
}

TEST_CASE("shared JSON: there is a null at first, and equal values are equal wherever they are") {
  SharedJson none;
  CHECK(none->is_null());
  CHECK(none == SharedJson(Json()));
  none.edit()["name"] = "a";
  CHECK(none == SharedJson(Json{{"name", "a"}}));
}
