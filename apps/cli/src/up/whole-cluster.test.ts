import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { catalogOf } from "@heddle/contracts/catalog";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// `heddle up` with its real master, worker, parameter server and engine, on the tiny model.

const MAIN = programOf("cli");
const scratch = mkdtempSync(join(tmpdir(), "heddle-whole-"));
const started: DrivenProcess[] = [];
const IDS = ["FamilyA-1-2B", "FamilyA-1-4B", "FamilyA-1-8B", "FamilyB-1-2B", "FamilyB-1-8B"];
/** The context length in the file's metadata, other than the default of a registration. */
const TINY_CONTEXT = 8192;
const SMALL_BYTES = catalogOf("small").deployments[0]?.spec.weights.sizeBytes ?? 0;
/** The tiny model's end tokens; banned, an answer runs to its bound. */
const NO_END = { "0": -100, "1": -100, "2": -100, "3": -100 };

afterEach(async () => {
  for (const driven of started.splice(0)) {
    // A second Ctrl-C ends everything at once; the children end with their parent in any case.
    driven.child.kill("SIGKILL");
    await driven.end();
  }
});
afterAll(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }));

async function up(data: string, ...flags: string[]) {
  return upWith({}, data, ...flags);
}

async function upWith(env: NodeJS.ProcessEnv, data: string, ...flags: string[]) {
  const port = await freePort();
  const place = ["--data", join(scratch, data), "--port", String(port)];
  const driven = new DrivenProcess([process.execPath, MAIN, "up", ...place, ...flags], {
    HEDDLE_DRAIN_MS: "300",
    ...env,
  });
  started.push(driven);
  const request = (method: string, path: string, body?: object) => {
    const key = readFileSync(join(scratch, data, "bootstrap-key"), "utf8").trim();
    return fetch(`http://127.0.0.1:${port}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
  };
  const models = async () => {
    const reply = await request("GET", "/models");
    return ((await reply.json()) as { data: Record<string, string>[] }).data;
  };
  return { driven, request, models };
}

/** A model hub that sends the first bytes of a file, and then nothing. */
async function brokenHub(bytes: number) {
  const paths: string[] = [];
  const open = new Set<ServerResponse>();
  const server = createServer((request, response) => {
    paths.push(request.url ?? "");
    if (paths.length > 1) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-length": SMALL_BYTES });
    response.write(Buffer.alloc(bytes));
    open.add(response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const end = () => {
    for (const response of open) response.destroy();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}`, paths, breakOff: () => [...open][0]?.destroy(), end };
}

/** Three starts of five processes each, on a machine that may be slow. */
const TIMEOUT_MS = 120_000;

describe("whole cluster", () => {
  // holds: start-pull
  it("--profile small: pulls from the hub with progress, and reports why it cannot", async () => {
    const hub = await brokenHub(Math.ceil(SMALL_BYTES * 0.02));
    try {
      const { driven } = await upWith({ HF_ENDPOINT: hub.url }, "small", "--profile", "small");
      await driven.printed(/pulling qwen2\.5-0\.5b-instruct-q8_0\.gguf [0-2] %/, TIMEOUT_MS / 2);
      hub.breakOff();
      await driven.printed(/Ctrl-C stops everything/, TIMEOUT_MS / 3);
      expect(driven.stderr).toMatch(/The model could not be loaded: .*404.*without --profile/s);
      expect(hub.paths[0]).toMatch(
        /^\/Qwen\/Qwen2\.5-0\.5B-Instruct-GGUF\/resolve\/[0-9a-f]{40}\/qwen2\.5-0\.5b-instruct-q8_0\.gguf$/,
      );
    } finally {
      hub.end();
    }
  });

  // holds: start-ctrl-c
  it("one Ctrl-C: a running stream is informed of the shutdown, and the exit code is 0", async () => {
    const { driven, request } = await up("stop", "--profile", "tiny");
    await driven.printed(/Ctrl-C stops everything/);
    const reply = await request("POST", "/chat/completions", {
      model: "FamilyA-1-2B",
      messages: [{ role: "user", content: "continue" }],
      n: 4,
      max_tokens: 4000,
      logit_bias: NO_END,
      stream: true,
    });
    expect(reply.status).toBe(200);
    const reader = (reply.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder();
    let text = decoder.decode((await reader.read()).value);
    driven.child.kill("SIGINT");
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      text += decoder.decode(part.value, { stream: true });
    }
    const last = text.trimEnd().split("\n\n").at(-1) ?? "";
    expect(last).toMatch(/^event: error\n/);
    expect(JSON.parse(last.split("data: ")[1] ?? "")).toMatchObject({
      error: {
        code: "unavailable",
        retryable: true,
        message: expect.stringContaining("shutting down"),
      },
    });
    expect(await driven.end()).toBe(0);
    expect(driven.stderr).not.toMatch(/error|warn|lost/i);
  });

  // holds: engine-catalog
  it("--model FILE: serves the five ids too; later starts use the stored choice", async () => {
    const file = join(scratch, "my own.gguf");
    await writeTinyModel(file, { contextTokens: TINY_CONTEXT, chatTemplate: null });
    const own = await up("file", "--model", file);
    await own.driven.printed(/Ctrl-C stops everything/);
    expect(own.driven.stderr).toContain("asking my-own");
    const mine = (await own.models()).find(({ id }) => id === "my-own");
    expect(mine).toMatchObject({
      context_window: TINY_CONTEXT,
      served_context_tokens: TINY_CONTEXT,
      chat_template: "chatml",
    });
    const backing = "my-own.gguf, the file that the start was given, in place of this model.";
    const listed = await own.models();
    expect(listed.map(({ id }) => id).sort()).toEqual([...IDS, "my-own"]);
    const shipped = listed.filter(({ id }) => id !== "my-own");
    expect(new Set(shipped.map((model) => model["backing"]))).toEqual(new Set([backing]));
    expect(new Set(listed.map(({ deployment }) => deployment)).size).toBe(1);
    expect(own.driven.stdout).toContain(`${backing} (a stand-in)`);
    await own.request("DELETE", "/models/FamilyB-1-2B");
    own.driven.child.kill("SIGINT");
    expect(await own.driven.end()).toBe(0);

    const plain = await up("file", "--profile", "tiny");
    await plain.driven.printed(/Ctrl-C stops everything/);
    const after = await plain.models();
    expect(after.map(({ id }) => id).sort()).toEqual(
      [...IDS, "my-own"].filter((id) => id !== "FamilyB-1-2B"),
    );
    const tiny = after.filter(({ id }) => id !== "my-own").map((model) => model["backing"]);
    expect(new Set(tiny).size).toBe(1);
    expect(tiny[0]).toMatch(/^A tiny model of random weights/);
  });
});
