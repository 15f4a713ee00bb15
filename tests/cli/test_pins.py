"""Choices of backends that are given with `pins=`: config.yaml, checkpoints and exported models
carry them, predict and export read them, and what is not one is refused.

usage: test_pins.py LEVIN [test names]
"""

import json
import os
import struct

from case import Case, FAILURE, main, OK, read, write

GIVEN, KEPT = "pins=[sim.conv1=5,cpu.x/3=a-b]", "cpu.x/3=a-b sim.conv1=5"


def parts_of(path):
    """Header and tensors of a safetensors file."""
    whole = read(path)
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8:end]), whole[end:]


def pins_of(path):
    return parts_of(path)[0]["__metadata__"].get("pins")


class Pins(Case):
    def predict(self, model, code=OK, expects=()):
        self.levin(
            ["predict", f"model={model}", f"data={self.photos}", f"output={self.dir}/p.csv"],
            code,
            expects,
        )
        return read(f"{self.dir}/p.csv") if code == OK else None

    def test_travel_with_the_run(self):
        self.train(GIVEN, "quiet=false")
        config = read(f"{self.out}/config.yaml").decode()
        self.assertIn('pins: ["cpu.x/3=a-b", "sim.conv1=5"]\n', config)
        log = read(f"{self.out}/train.log").decode()
        self.assertIn(" pins=[cpu.x/3=a-b,sim.conv1=5]\n", log)
        exported = f"{self.out}/exported_models/exported_last.safetensors"
        saved = f"{self.out}/checkpoints/last.safetensors"
        self.assertEqual([pins_of(exported), pins_of(saved)], [KEPT, KEPT])
        self.levin(["export", f"model={self.out}", f"output={self.dir}/e.safetensors"], OK)
        self.assertEqual(pins_of(f"{self.dir}/e.safetensors"), KEPT)
        # nothing reads these, so results are those without them
        self.assertEqual(len({self.predict(m) for m in (exported, saved, self.exported)}), 1)
        self.assertIsNone(pins_of(self.exported))
        self.train("resume=true", "max_steps=4")
        self.assertEqual(pins_of(saved), KEPT)

    def test_bad_values(self):
        for bad in ("sim", "sim.x", "sim.x=", "=5", ".x=5", "sim.x=a b", "sim.x=5=6"):
            self.refused([f"pins=[{bad}]"], ["pins ", "expected backend.name=value"])
        self.refused(["pins=[sim.x=1,sim.x=2]"], ["pins: sim.x is 1 and 2: give one of the two"])

    def test_bad_files(self):
        head, tensors = parts_of(self.exported)
        for bad in ("sim.x", "sim.x=1 sim.x=2", "x" * 5000):
            card = head["__metadata__"]["classifier"]
            head["__metadata__"] = {"format": "pt", "classifier": card, "pins": bad}
            text = json.dumps(head).encode()
            path = f"{self.dir}/bad.safetensors"
            write(path, struct.pack("<Q", len(text)) + text + tensors)
            self.predict(path, FAILURE, [path, "its metadata pins has "])

    def test_bad_checkpoints(self):
        self.train(GIVEN)
        saved = f"{self.out}/checkpoints/last.safetensors"
        head, tensors = parts_of(saved)
        for key in ("levin.checksums", "levin.header_checksum"):
            del head["__metadata__"][key]
        for bad in ("sim.x", "nodot=1", "=5", "sim.y=" + "x" * 300):
            head["__metadata__"]["pins"] = bad
            text = json.dumps(head).encode()
            os.remove(saved)
            write(saved, struct.pack("<Q", len(text)) + text + tensors)
            expects = [f"{saved}: its metadata pins has "]
            self.train("resume=true", "max_steps=4", code=FAILURE, expects=expects)


if __name__ == "__main__":
    main()
