// holds: engine-pull-hazards

import { execFileSync, fork } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readlinkSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { until } from "@heddle/base/testing/until";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readGguf } from "../gguf/gguf-reader.ts";
import { type PullOptions, pullWeights } from "./pull-weights.ts";

let folder = "";
let cacheDirectory = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-hazards-"));
  cacheDirectory = join(folder, "cache");
});
afterAll(() => rm(folder, { recursive: true }));

function spec(sources: readonly string[], sha256?: string): WeightsSpec {
  return { key: "shared-key", file: "model.gguf", sources, sha256 };
}

function pull(weights: WeightsSpec, options: Partial<PullOptions> = {}): Promise<string> {
  const signal = AbortSignal.timeout(100_000);
  return pullWeights(weights, { cacheDirectory, signal, ...options });
}

/** The files that this process has open; none where there is no /proc. */
function openFiles(): string[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return []; // The one that listed them.
    }
  });
}

const hashOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("weights of one key", () => {
  it("serves each source without a digest its own file", async () => {
    const contexts = [1024, 2048];
    for (const context of [...contexts, ...contexts]) {
      const path = await pull(spec([`builtin://tiny?context=${context}`]));
      const { metadata } = await readGguf(path);
      expect(metadata.get("llama.context_length")?.value).toBe(context);
    }
  });

  it("never gives a local file's key the weights that another model has cached", async () => {
    const cached = await pull(spec(["builtin://tiny?seed=7"]));
    const sha256 = hashOf(await readFile(cached));
    await pull(spec(["builtin://tiny?seed=7"], sha256));
    const own = join(folder, "own.gguf");
    await writeFile(own, "own");
    expect(await pull(spec([pathToFileURL(own).href]))).toBe(own);
    await rm(own);
    await expect(pull(spec([pathToFileURL(own).href]))).rejects.toThrow(/cannot be read/);
  });

  it("keeps the files of two digests side by side", async () => {
    const seeds = [1, 7].map((seed) => `builtin://tiny?seed=${seed}`);
    const digests: string[] = [];
    for (const source of seeds) digests.push(hashOf(await readFile(await pull(spec([source])))));
    const paths = await Promise.all(seeds.map((seed, at) => pull(spec([seed], digests[at]))));
    for (const [at, path] of paths.entries()) {
      expect(hashOf(await readFile(path))).toBe(digests[at]);
    }
  });
});

describe.skipIf(process.platform === "win32")("local files", () => {
  it("pipes: refused, with and without a digest, and the process continues and ends", async () => {
    const sources = Array.from({ length: 6 }, (_, at) => {
      const path = join(folder, `pipe-${at}.gguf`);
      execFileSync("mkfifo", [path]);
      return pathToFileURL(path).href;
    });
    const script = join(folder, "pipes.mts");
    const module = new URL("./pull-weights.ts", import.meta.url).href;
    const digest = "0".repeat(64);
    await writeFile(
      script,
      `import { pullWeights } from ${JSON.stringify(module)};
       const pull = (source, sha256) => pullWeights(
         { key: "k", file: "m.gguf", sources: [source], sha256 },
         { cacheDirectory: ${JSON.stringify(cacheDirectory)}, signal: AbortSignal.timeout(100000) },
       ).catch((error) => error.code + " " + error.message);
       const sources = ${JSON.stringify(sources)};
       const all = sources.map((source, at) => pull(source, at % 2 ? "${digest}" : undefined));
       process.send(await Promise.all(all), () => process.exit(0));`,
    );
    const child = fork(script, { execArgv: [] });
    const killer = setTimeout(() => child.kill("SIGKILL"), 100_000);
    const ended = once(child, "exit");
    const [messages] = (await Promise.race([
      once(child, "message"),
      ended.then(() => [["it hung"]]),
    ])) as [string[]];
    const [code] = await ended;
    clearTimeout(killer);
    expect(code).toBe(0);
    expect(messages.length).toBe(sources.length);
    for (const message of messages) {
      expect(message).toMatch(/^model_failed .*it is not a regular file/s);
    }
  });

  it("devices and directories are refused", async () => {
    for (const path of ["/dev/zero", folder]) {
      const failed = pull(spec([pathToFileURL(path).href]));
      await expect(failed).rejects.toMatchObject({ code: "model_failed" });
      await expect(readGguf(path)).rejects.toMatchObject({ code: "not_found" });
    }
  });
});

describe("deadlines", () => {
  /** An artifact whose worker sends nothing, or single bytes without end. */
  const artifact = spec(["artifact://job/1/0/model.gguf"], "0".repeat(64));
  const limits = { idleTimeoutMs: 150, maxPullMs: 10_000 };

  it("an artifact of which no byte comes fails within the idle time", async () => {
    const pulled = pull(artifact, {
      limits,
      readers: {
        artifact: async function* (_artifact, _offset, signal) {
          await once(signal, "abort");
          signal.throwIfAborted();
          yield new Uint8Array();
        },
      },
    });
    await expect(pulled).rejects.toThrow(/gave no data for 150 ms/);
  });

  it("a pull ends at its deadline, also where its source ignores the signal", async () => {
    // Keeps the source, so that the garbage collector closes nothing.
    const waiting: unknown[] = [];
    const pulled = pull(artifact, {
      limits: { ...limits, maxPullMs: 300 },
      readers: {
        artifact: async function* () {
          yield new Uint8Array(1);
          await new Promise((resolve) => waiting.push(resolve));
        },
      },
    });
    await expect(pulled).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("within 300 ms"),
    });
    // Its file is closed, also without the source's end.
    await until("no part is open", () => openFiles().every((path) => !path.includes(".part")));
    expect(waiting).toHaveLength(1);
  });
});
