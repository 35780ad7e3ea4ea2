// holds: engine-pull

import { fork } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { hostname, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { eventually } from "@heddle/base/testing/eventually";
import { rejectionOf } from "@heddle/base/testing/rejection";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { readGguf } from "../gguf/gguf-reader.ts";
import { type PullOptions, pullWeights } from "./pull-weights.ts";

const content = randomBytes(600_000);
const sha256 = createHash("sha256").update(content).digest("hex");
type Handler = (request: IncomingMessage, response: ServerResponse) => void;

let folder: string;
let cache: string;
let server: Server;
let endpoint: string;
let handler: Handler;
let requests: { url: string; headers: IncomingMessage["headers"] }[];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-pull-"));
  server = createServer((request, response) => {
    requests.push({ url: request.url ?? "", headers: request.headers });
    handler(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  cache = await mkdtemp(join(folder, "cache-"));
  requests = [];
  handler = (request, response) => serve(request, response);
});
afterEach(() => server.closeAllConnections());

/** A static file server with ranges and a strong ETag. */
function serve(request: IncomingMessage, response: ServerResponse, body = content, etag = '"v1"') {
  const start = /^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1];
  const current = (request.headers["if-range"] ?? etag) === etag;
  response.setHeader("etag", etag);
  if (start === undefined || !current) {
    response.writeHead(200, { "content-length": body.length }).end(body);
  } else if (Number(start) >= body.length) {
    response.writeHead(416, { "content-range": `bytes */${body.length}` }).end();
  } else {
    const part = body.subarray(Number(start));
    const range = `bytes ${start}-${body.length - 1}/${body.length}`;
    response.writeHead(206, { "content-length": part.length, "content-range": range }).end(part);
  }
}

/** Promises the whole file, sends `bytes` of it from where it was asked to start, and hangs up. */
function cut(response: ServerResponse, request: IncomingMessage, bytes: number) {
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
  const headers = { "content-length": content.length - start, etag: '"v1"' };
  const range = { "content-range": `bytes ${start}-${content.length - 1}/${content.length}` };
  response.writeHead(start === 0 ? 200 : 206, start === 0 ? headers : { ...headers, ...range });
  response.write(content.subarray(start, start + bytes), () => {
    setTimeout(() => response.destroy(), 20);
  });
}

function specOf(sources: readonly string[], more: Partial<WeightsSpec> = {}): WeightsSpec {
  return {
    key: "model-1",
    file: "model.gguf",
    sources,
    sha256,
    sizeBytes: content.length,
    ...more,
  };
}

const hub = "hf://owner/repo/some dir/model.gguf@abc123";
const quick = { retryBaseMs: 1, retryMaxMs: 5, connectTimeoutMs: 5_000, idleTimeoutMs: 5_000 };

function pull(spec: WeightsSpec, options: Partial<PullOptions> = {}): Promise<string> {
  return pullWeights(spec, {
    cacheDirectory: cache,
    signal: AbortSignal.timeout(50_000),
    env: { HF_ENDPOINT: endpoint },
    limits: quick,
    ...options,
  });
}

/** The cache's folder of the test's content, which its digest names. */
const place = () => join(cache, "model-1", sha256.slice(0, 32));
const filesOf = async () => (await readdir(place())).sort();

describe("pullWeights", () => {
  it("pulls from the hub, verifies, reports progress, and is warm the next time", async () => {
    const progress: [number, number, string][] = [];
    const path = await pull(specOf([hub]), {
      env: { HF_ENDPOINT: endpoint, HF_TOKEN: "secret" },
      onProgress: (...seen) => progress.push(seen),
    });
    expect(path).toBe(join(place(), "model.gguf"));
    expect(Buffer.compare(await readFile(path), content)).toBe(0);
    expect(requests.map(({ url }) => url)).toEqual([
      "/owner/repo/resolve/abc123/some%20dir/model.gguf",
    ]);
    expect(requests[0]?.headers.authorization).toBe("Bearer secret");
    expect(progress[0]).toEqual([0, content.length, hub]);
    expect(progress.at(-1)).toEqual([content.length, content.length, hub]);
    expect(await filesOf()).toEqual(["model.gguf", "model.gguf.verified.json"]);

    expect(await pull(specOf([hub]))).toBe(path);
    expect(requests.length).toBe(1);
  });

  it("trusts an unchanged file by its marker, and hashes a changed one again", async () => {
    const path = await pull(specOf([hub]));
    const time = new Date("2026-01-02T03:04:05Z");
    await utimes(path, time, time);
    await pull(specOf([hub]));
    expect(requests.length).toBe(1);
    // Other bytes under the same size and time pass: the marker alone was checked.
    await writeFile(path, Buffer.alloc(content.length));
    await utimes(path, time, time);
    await pull(specOf([hub]));
    expect(requests.length).toBe(1);
    await utimes(path, time, new Date(time.getTime() + 1));
    await pull(specOf([hub]));
    expect(requests.length).toBe(2);
    expect(Buffer.compare(await readFile(path), content)).toBe(0);
  });

  it("takes a file that was put into the cache by hand where its digest is right", async () => {
    await mkdir(join(cache, "model-1"));
    await writeFile(join(cache, "model-1", "model.gguf"), content);
    await pull(specOf([hub]));
    expect(requests).toEqual([]);
  });

  it("resumes after a cut, with the range and the ETag it had", async () => {
    let calls = 0;
    handler = (request, response) => {
      calls++;
      if (calls <= 3) cut(response, request, 100_000);
      else serve(request, response);
    };
    await pull(specOf([hub]));
    expect(requests.length).toBe(4);
    expect(requests[3]?.headers["if-range"]).toBe('"v1"');
    const start = Number(requests[3]?.headers.range?.replace(/\D/g, ""));
    expect(start).toBeGreaterThan(0);
  });

  it("starts again where the file changed on the server meanwhile", async () => {
    let calls = 0;
    handler = (request, response) => {
      calls++;
      if (calls === 1) cut(response, request, 100_000);
      else serve(request, response, content, '"v2"');
    };
    await pull(specOf([hub]));
    expect(requests.length).toBe(2);
  });

  it("starts again where a part left by an earlier pull turns out to be wrong", async () => {
    await mkdir(place(), { recursive: true });
    const part = join(place(), "model.gguf.part");
    await writeFile(part, Buffer.alloc(1000));
    await writeFile(`${part}.json`, JSON.stringify({ identity: hub, etag: '"v1"' }));
    await pull(specOf([hub]));
    expect(requests.map(({ headers }) => headers.range)).toEqual(["bytes=1000-", undefined]);
  });

  it("finishes at once where the part is whole already", async () => {
    await mkdir(place(), { recursive: true });
    const part = join(place(), "model.gguf.part");
    await writeFile(part, content);
    await writeFile(`${part}.json`, JSON.stringify({ identity: hub, etag: '"v1"' }));
    await pull(specOf([hub]));
    expect(requests.length).toBe(1);
  });

  it("keeps a resumable part when it is aborted, and says cancelled", async () => {
    const controller = new AbortController();
    handler = (_request, response) => {
      response.writeHead(200, { "content-length": content.length, etag: '"v1"' });
      response.write(content.subarray(0, 200_000));
    };
    const error = await rejectionOf(
      pull(specOf([hub]), {
        signal: controller.signal,
        limits: { ...quick, idleTimeoutMs: 10_000 },
        onProgress: (pulled) => {
          if (pulled === 200_000) controller.abort();
        },
      }),
    );
    expect(error.code).toBe("cancelled");
    expect(await filesOf()).toEqual(["model.gguf.part", "model.gguf.part.json"]);
    handler = serve;
    await pull(specOf([hub]));
    expect(requests[1]?.headers.range).toBe("bytes=200000-");
  });

  it("refuses a wrong digest, leaves nothing of it, and names both digests", async () => {
    handler = (request, response) => serve(request, response, Buffer.alloc(content.length));
    const error = await rejectionOf(pull(specOf([hub])));
    expect(error.code).toBe("model_failed");
    expect(error.message).toMatch(new RegExp(`has the sha256 [0-9a-f]{64} instead of ${sha256}`));
    expect(await filesOf()).toEqual([]);
  });

  it("refuses a file of another size before it is read", async () => {
    const error = await rejectionOf(pull(specOf([hub], { sizeBytes: 5 })));
    expect(error.message).toContain(`the file has ${content.length} bytes instead of 5`);
  });

  it("refuses what grows past the limit where no size is declared", async () => {
    handler = (_request, response) => {
      response.writeHead(200);
      response.end(content);
    };
    const spec = specOf([hub], { sizeBytes: undefined });
    const error = await rejectionOf(pull(spec, { limits: { ...quick, maxBytes: 100_000 } }));
    expect(error.message).toContain("the file is larger than 100000 bytes");
  });

  it("refuses what the disk cannot hold", async () => {
    const sizeBytes = 2 ** 50;
    handler = (_request, response) => {
      response.writeHead(200, { "content-length": sizeBytes });
      response.flushHeaders();
    };
    const error = await rejectionOf(
      pull(specOf([hub], { sizeBytes }), { limits: { ...quick, maxBytes: 2 ** 52 } }),
    );
    expect(error.message).toMatch(/bytes are needed and the disk of .* has \d+ free/);
  });

  it("retries transient answers, a bounded number of times, and not a 404", async () => {
    handler = (_request, response) => response.writeHead(503).end();
    const busy = await rejectionOf(pull(specOf([hub]), { limits: { ...quick, maxAttempts: 3 } }));
    expect(busy.message).toContain("answers 503");
    expect(requests.length).toBe(3);
    handler = (_request, response) => response.writeHead(404).end();
    const absent = await rejectionOf(pull(specOf([hub])));
    expect(absent.message).toContain("answers 404");
    expect(requests.length).toBe(4);
    handler = (_request, response) => response.writeHead(401).end();
    expect((await rejectionOf(pull(specOf([hub])))).message).toContain("HF_TOKEN");
  });

  it("gives up on a server that is silent, after trying again", async () => {
    handler = (_request, response) => {
      response.writeHead(200, { "content-length": content.length });
      response.flushHeaders();
    };
    const limits = { ...quick, idleTimeoutMs: 60, maxAttempts: 2 };
    const error = await rejectionOf(pull(specOf([hub]), { limits }));
    expect(error.message).toContain("was silent for 60 ms");
    expect(requests.length).toBe(2);
  });

  it("takes the next source at once where a host cannot be reached", async () => {
    const local = join(folder, "local.gguf");
    await writeFile(local, content);
    const started = performance.now();
    // A name that never resolves (RFC 6761) and a loopback port without a listener.
    const path = await pull(
      specOf([
        "https://weights.invalid/model.gguf",
        "https://127.0.0.1:9/model.gguf",
        pathToFileURL(local).href,
      ]),
      { allowedHosts: ["weights.invalid", "127.0.0.1"], limits: { connectTimeoutMs: 60_000 } },
    );
    expect(path).toBe(local);
    // Far less than a try that waits for an answer takes.
    expect(performance.now() - started).toBeLessThan(30_000);
  });

  it("lists every source, why it failed and what to do, where none works", async () => {
    const sources = [hub, "https://example.com/model.gguf", "file:///absent/model.gguf"];
    handler = (_request, response) => response.writeHead(410).end();
    const error = await rejectionOf(pull(specOf(sources)));
    expect(error.code).toBe("model_failed");
    const local = "the local file model.gguf";
    for (const source of [...sources.slice(0, 2), local])
      expect(error.message).toContain(`- ${source}: `);
    expect(error.message).toContain("example.com is not on the allow-list");
    expect(error.message).toContain("ENOENT");
    expect(error.message).toContain("weights cache as model-1/model.gguf");
    expect(error.message).not.toContain(cache);
    expect(error.message).toContain("file:///path/to/model.gguf");
  });

  it("checks every redirect: refused hosts and private addresses are never asked", async () => {
    for (const location of [
      "https://evil.example/x",
      "http://169.254.169.254/latest/meta-data",
      "https://localhost/x",
      "ftp://huggingface.co/x",
    ]) {
      handler = (_request, response) => response.writeHead(302, { location }).end();
      const error = await rejectionOf(pull(specOf([hub])));
      expect(error.message).toMatch(/not on the allow-list|is not allowed for/);
    }
    handler = (_request, response) => response.writeHead(302, { location: "/again" }).end();
    expect((await rejectionOf(pull(specOf([hub])))).message).toContain(
      "redirects more than 5 times",
    );
  });

  it("follows a redirect to an allowed host, without the token", async () => {
    const other = createServer((request, response) => {
      requests.push({ url: "other", headers: request.headers });
      serve(request, response);
    });
    other.listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as AddressInfo;
    handler = (_request, response) =>
      response.writeHead(307, { location: `http://127.0.0.1:${port}/signed?x=1` }).end();
    await pull(specOf([hub]), { env: { HF_ENDPOINT: endpoint, HF_TOKEN: "secret" } });
    expect(requests.map(({ headers }) => headers.authorization)).toEqual([
      "Bearer secret",
      undefined,
    ]);
    other.close();
  });

  it("takes weights without a digest from a remote source only where that is allowed", async () => {
    const spec = specOf([hub], { sha256: undefined });
    const error = await rejectionOf(pull(spec));
    expect(error.message).toContain("its sha256 is not known");
    expect(requests).toEqual([]);
    const path = await pull(spec, { allowUnverified: true });
    expect(await pull(spec)).toBe(path);
    expect(requests.length).toBe(1);
  });

  it("uses a file:// source where it lies, verified if it has a digest", async () => {
    const local = join(folder, "mine.gguf");
    await writeFile(local, content);
    const source = pathToFileURL(local).href;
    expect(await pull(specOf([source]))).toBe(local);
    expect(await pull(specOf([source], { sha256: undefined, sizeBytes: undefined }))).toBe(local);
    await truncate(local, 10);
    const error = await rejectionOf(pull(specOf([source], { sizeBytes: undefined })));
    expect(error.message).toContain(
      `the local file mine.gguf: it does not have the sha256 ${sha256}`,
    );
    expect(error.message).not.toContain(folder);
    await rm(local);
    const gone = await rejectionOf(pull(specOf([source])));
    expect(gone.message).toMatch(/the local file mine\.gguf: it cannot be read: ENOENT/);
    expect(gone.message).not.toContain(folder);
  });

  it("writes the tiny model for builtin://tiny", async () => {
    const spec = specOf(["builtin://tiny?context=8192"], {
      sha256: undefined,
      sizeBytes: undefined,
    });
    const path = await pull(spec);
    const { metadata } = await readGguf(path);
    expect(metadata.get("llama.context_length")?.value).toBe(8192);
    const files = await readdir(dirname(path));
    expect(files.sort()).toEqual(["model.gguf", "model.gguf.verified.json"]);
  });

  it("says so where the cache folder cannot be used", async () => {
    const cacheDirectory = join(folder, "a-file");
    await writeFile(cacheDirectory, "");
    const error = await rejectionOf(pull(specOf([hub]), { cacheDirectory }));
    expect(error.code).toBe("unavailable");
    expect(error.message).toMatch(
      /cannot use the worker's weights cache for model-1: ENOTDIR.*set another one/,
    );
  });

  it("refuses a spec that would leave the cache or is no spec", async () => {
    const wrong: [Partial<WeightsSpec>, string][] = [
      [{ key: "../up" }, "weights.key"],
      [{ file: "../x.gguf" }, "weights.file"],
      [{ file: "model.bin" }, "weights.file"],
      [{ sha256: "ABC" }, "weights.sha256"],
      [{ sources: [] }, "weights.sources"],
      [{ sources: ["ftp://x/y"] }, "weights.sources"],
    ];
    for (const [more, param] of wrong) {
      const error = await rejectionOf(pull({ ...specOf([hub]), ...more }));
      expect([error.code, error.param]).toEqual(["invalid_value", param]);
    }
  });
});

describe("two processes that pull the same weights", () => {
  /** Pulls in another process, through the sources of this package. */
  async function pullElsewhere(): Promise<string> {
    const script = join(folder, "pull.mts");
    const module = fileURLToPath(new URL("./pull-weights.ts", import.meta.url));
    const options = { cacheDirectory: cache, env: { HF_ENDPOINT: endpoint } };
    await writeFile(
      script,
      `import { pullWeights } from ${JSON.stringify(pathToFileURL(module).href)};
       const signal = AbortSignal.timeout(100000);
       process.send(await pullWeights(${JSON.stringify(specOf([hub]))}, { ...${JSON.stringify(options)}, signal }));`,
    );
    const child = fork(script, { execArgv: [] });
    const [path] = (await once(child, "message")) as [string];
    child.kill();
    return path;
  }

  it("share one download", async () => {
    handler = (request, response) => {
      setTimeout(() => serve(request, response), 800);
    };
    const waiting: string[] = [];
    const limits = { ...quick, idleTimeoutMs: 5_000 };
    const onProgress = (_pulled: number, _total: number, source: string) => waiting.push(source);
    const elsewhere = pullElsewhere();
    await eventually(() => requests.length > 0, "the other process downloads");
    const paths = await Promise.all([elsewhere, pull(specOf([hub]), { limits, onProgress })]);
    expect(new Set(paths).size).toBe(1);
    expect(requests.length).toBe(1);
    expect(new Set(waiting)).toEqual(new Set(["another process"]));
  });

  it("do not wait for one that died", async () => {
    const child = fork(join(import.meta.dirname, "pull-weights.test.ts"), {
      execArgv: ["-e", "0"],
    });
    await once(child, "exit");
    await mkdir(place(), { recursive: true });
    const owner = { host: hostname(), pid: child.pid, token: "dead" };
    await writeFile(join(place(), "model.gguf.lock"), JSON.stringify(owner));
    await pull(specOf([hub]));
    expect(await filesOf()).toEqual(["model.gguf", "model.gguf.verified.json"]);
  });
});
