// A program that trains until it is satisfied, and goes on with the model: y = 2 x + 5.
#include <iostream>

#include <sgd/trainer_model.hpp>

struct Line : torch::nn::Module {  // The parameters of "model": {"type": "linear"}.
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(1, 1));
};

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: drive job.json\n";
    return 2;
  }
  try {
    sgd::Trainer trainer(words[1]);
    trainer.start();
    double loss = 1000;
    for (int epoch = 1; epoch <= 20 && loss > 0.1; ++epoch) {
      const double trained = trainer.train()["train_loss"];
      loss = trainer.validate()["val_loss"];
      std::cout << "epoch " << epoch << ": train_loss " << trained << ", val_loss " << loss << "\n";
    }
    trainer.save("line");
    const auto line = trainer.model<Line>();
    std::cout << "f(3) = " << line->linear->forward(torch::full({1, 1}, 3.0F)).item<float>() << "\n";
    trainer.shutdown();
  } catch (const sgd::TrainerError& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
