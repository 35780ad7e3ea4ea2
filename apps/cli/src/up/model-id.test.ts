// holds: start-bad-options

import { expect, it } from "vitest";
import { modelIdOf } from "./model-id.ts";

it.each([
  ["SmolLM2-135M-Instruct.Q4_1", "SmolLM2-135M-Instruct.Q4_1"],
  ["my--model-", "my--model-"],
  ["_hidden", "hidden"],
  ["naïve mødel – (v1)", "naive-m-del-v1"],
  ["模型", "model"],
])("model id: %s.gguf gives %s", (name, id) => {
  expect(modelIdOf(`/models/${name}.gguf`)).toBe(id);
});

it("model id: long names are cut and stay distinct", () => {
  const [one, other] = ["a", "b"].map((end) => modelIdOf(`${"x".repeat(229)}${end}.gguf`));
  expect(one).toMatch(/^x{120}-[0-9a-f]{8}$/);
  expect(other).not.toBe(one);
});
