import { describe, expect, it } from "vitest";
import { checkAbi, LLAMA_VERSION } from "./abi-guard.ts";
import { openBindings } from "./bindings.ts";
import { CONTEXT_DEFAULTS, MODEL_DEFAULTS } from "./layouts.ts";
import { findNativeLibrary } from "./native-library.ts";

const matching = {
  version: () => LLAMA_VERSION,
  model_default_params: () => MODEL_DEFAULTS,
  context_default_params: () => CONTEXT_DEFAULTS,
};

describe("the ABI guard", () => {
  it("accepts the installed libraries", () => {
    const { llama } = openBindings(findNativeLibrary("cpu"));
    expect(llama.version()).toBe(LLAMA_VERSION);
  });

  it("refuses another version and names the package to install", () => {
    const library = findNativeLibrary("cpu");
    expect(() => checkAbi({ ...matching, version: () => "0.6.0" }, library)).toThrow(
      /version is 0\.6\.0, not .*install @node-llama-cpp\//,
    );
  });

  it("refuses a layout whose members moved and names them", () => {
    const library = findNativeLibrary("cpu");
    const moved = { ...CONTEXT_DEFAULTS, n_batch: 0, kv_unified: true };
    expect(() => checkAbi({ ...matching, context_default_params: () => moved }, library)).toThrow(
      /n_batch is 0, not 2048; kv_unified is true, not false/,
    );
  });
});
