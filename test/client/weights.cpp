// Prints what a folder's weights make of a line, or why they do not fit.
#include <iostream>

#include <sgd/trainer_model.hpp>

struct Line : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(1, 1));
};

int main(int /*count*/, char** words) {
  Line line;
  try {
    sgd::client::load_weights(line, sgd::client::Weights{words[1], ""});
    std::cout << line.linear->weight.item<float>() << " " << line.linear->bias.item<float>() << "\n";
  } catch (const sgd::TrainerError& error) {
    std::cout << error.what() << "\n";
  }
}
