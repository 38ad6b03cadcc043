"""Data sets of image files through the real programs: what they train, what threads and a kill must not change, and what is refused."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, write_job
from harness import BIN_DIR, CONFIGS, LaunchTest, read_file
from images import image_folder, image_masks, png_bytes, write_bytes

PLUGIN = os.path.join(BIN_DIR, "..", "lib", "segmenter.so")
CNN = {"type": "cnn", "channels": [4, 8], "hidden": 16, "outputs": 3}
TRANSFORMS = [{"type": "random_crop", "padding": 1}, {"type": "horizontal_flip"},
              {"type": "normalize", "mean": [0.4, 0.4, 0.4], "std": [0.3, 0.3, 0.3]}]


def weights(launch):
    return read_file(os.path.join(launch.checkpoints()[-1], "model.safetensors"))


class ImageDataTest(LaunchTest):
    def job_on(self, dataset, **changes):
        training = {"dataset": dataset, "model": CNN, "epochs": 4, "batch_size": 12}
        training.update(changes)
        return write_job(self.path("job.json"), image_job("unused", **training))

    def segmentation_job(self, dataset, **changes):
        job = image_job("unused", dataset=dataset, model={"type": "segmenter", "outputs": 2}, batch_size=8, **changes)
        job["plugins"] = [PLUGIN]
        return write_job(self.path("job.json"), job)

    def refused(self, path, code, *words):
        launch = self.run_to_end(path, run_dir=f"run-{len(os.listdir(self.folder))}", expect=code)
        for word in words:
            self.assertIn(word, launch.stderr())
        return launch

    def test_a_folder_of_jpeg_and_png_trains(self):
        dataset = image_folder(self.path("data"))
        launch = self.run_to_end(self.job_on(dataset, epochs=8, optimizer={"type": "adam", "lr": 0.005}))
        self.assertEqual([line["num_samples"] for line in launch.metrics("train")], [90] * 8)
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.9)

    def test_the_example_trains(self):
        dataset = image_folder(self.path("data"))
        launch = self.run_to_end(os.path.join(CONFIGS, "image_folder.json"), "--set", "training.dataset.train=" + dataset["train"],
                                 "--set", "training.dataset.validation=" + dataset["validation"], "--set", "training.epochs=4",
                                 "--set", "training.model.outputs=3")
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.8)

    def test_threads_and_a_kill_change_nothing(self):
        images = image_folder(self.path("data"), counts=(("train", 100), ("val", 10)))
        dataset = {**images, "resize": "random_resized_crop", "transforms": TRANSFORMS}
        one = self.run_to_end(self.job_on(dataset, epochs=12, loader={"threads": 0}), run_dir="one")
        many = self.run_to_end(self.job_on(dataset, epochs=12, loader={"threads": 3, "prefetch": 7}), run_dir="many")
        self.assertTrue(weights(one) == weights(many), "threads change what is learnt")
        killed = self.start(self.job_on(dataset, epochs=12), run_dir="killed")
        killed.wait_for_event("epoch_finished")
        os.kill(killed.rank_pids()[1], signal.SIGKILL)
        self.assertEqual(killed.wait(), 0, killed.said())
        self.assertTrue(weights(one) == weights(killed), "a kill changes what is learnt")
        self.assertEqual(len(killed.events("recovered")), 1)
        plain = self.run_to_end(self.job_on({**dataset, "resize": "crop"}, epochs=12), run_dir="plain")
        self.assertFalse(weights(one) == weights(plain))

    def test_masks_train_a_model_for_segmentation(self):
        dataset = {**image_masks(self.path("data")), "transforms": [{"type": "random_crop", "padding": 2}, {"type": "horizontal_flip"}]}
        launch = self.run_to_end(self.segmentation_job(dataset, epochs=20))
        losses = [line["val_loss"] for line in launch.metrics("validate")]
        self.assertLess(losses[-1], 0.2, losses)

    def test_masks_train_the_built_in_model_to_its_mean_iou(self):
        job = self.job_on(image_masks(self.path("data")), model={"type": "fcn", "channels": [8, 16], "outputs": 2}, batch_size=8, epochs=30,
                          optimizer={"type": "adam", "lr": 0.01}, metrics=["confusion_matrix"])
        launch = self.run_to_end(job)
        last = launch.metrics("validate")[-1]
        self.assertGreater(last["val_mean_iou"], 0.8, last)
        self.assertGreater(last["val_accuracy"], 0.9)

    def test_what_names_tell_is_refused_before_anything_starts(self):
        dataset = image_folder(self.path("data"), counts=(("train", 2), ("val", 2)))
        self.refused(self.job_on({**dataset, "train": self.path("none")}), 2, "data folder " + self.path("none") + ": No such file")
        self.refused(self.job_on(dataset, model={**CNN, "outputs": 2}), 2, "the data set has 3 classes: set training.model.outputs=3")
        write_bytes(self.path("data", "train", "red", "x.webp"), b"RIFF")
        self.refused(self.job_on(dataset), 2, "x.webp: images of type .webp are not decoded")
        os.remove(self.path("data", "train", "red", "x.webp"))
        os.makedirs(self.path("data", "train", "white"))
        self.refused(self.job_on(dataset), 2, "no image (.jpg, .jpeg or .png) in the sub-folder white")
        os.rmdir(self.path("data", "train", "white"))
        write_bytes(self.path("data", "val", "white", "1.png"), b"")
        launch = self.refused(self.job_on(dataset), 2, "the folder to validate on has white, which is not trained on")
        self.assertFalse(os.path.exists(launch.run_dir), "what the launcher sees starts nothing")
        masks = image_masks(self.path("masks"))
        os.remove(self.path("masks", "train", "masks", "003.png"))
        self.refused(self.segmentation_job(masks), 2, "003.png has no mask: expected " + self.path("masks", "train", "masks", "003.png"))
        self.refused(self.job_on(image_masks(self.path("masks")), model={"type": "cnn", "outputs": 2}), 2,
                     'take "fcn"')

    def test_a_bad_file_ends_the_run_and_is_named(self):
        dataset = image_folder(self.path("data"))
        path = self.path("data", "train", "red", "001.jpg")
        whole = read_file(path)
        for content, words in ((whole[:-10], "Premature end"), (b"no image", "neither a JPEG nor a PNG file"), (b"", "neither a JPEG")):
            with self.subTest(words=words):
                write_bytes(path, content)
                launch = self.refused(self.job_on(dataset), 1, f"data file {path}: cannot be decoded: {words}")
                self.assertEqual(len(launch.events("worker_started")), 2, "it was tried again")

    def test_a_bad_mask_ends_the_run_and_is_named(self):
        dataset = image_masks(self.path("data"))
        path = self.path("data", "train", "masks", "001.png")
        for mask, words in (([[0] * 16] * 15 + [[0] * 9 + [7] + [0] * 6], f"data file {path}: class 7 at row 15, column 9 (the first is 0) is outside 0..1"),
                            ([[0] * 15] * 16, "has 16 x 16 pixels, and its mask " + path + " has 16 x 15")):
            write_bytes(path, png_bytes(mask, channels=1))
            launch = self.refused(self.segmentation_job(dataset), 1, words)
            self.assertEqual(len(launch.events("worker_started")), 2, "it was tried again")


if __name__ == "__main__":
    unittest.main()
