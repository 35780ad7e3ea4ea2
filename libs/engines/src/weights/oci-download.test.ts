// holds: engine-pull

import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { pullWeights } from "./pull-weights.ts";

const content = randomBytes(100_000);
const digestOf = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex");
const sha256 = digestOf(content);
const TITLE = "org.opencontainers.image.title";

/** A registry of one repository, `team/model`, that wants an anonymous token. */
interface Registry {
  manifest: unknown;
  /** The body of every blob. */
  blob: Buffer;
  authenticate: string | undefined;
}

let folder: string;
let cache: string;
let server: Server;
let host: string;
let registry: Registry;
let asked: string[];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-oci-"));
  server = createServer(answer);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  cache = await mkdtemp(join(folder, "cache-"));
  asked = [];
  registry = {
    manifest: manifestOf([layer(content, "model.gguf"), layer(Buffer.from("x"), "README.md")]),
    blob: content,
    authenticate: `Bearer realm="http://${host}/token",service="registry",scope="repository:team/model:pull"`,
  };
});

function layer(bytes: Uint8Array, title?: string) {
  const annotations = title === undefined ? {} : { annotations: { [TITLE]: title } };
  return { digest: `sha256:${digestOf(bytes)}`, size: bytes.length, ...annotations };
}

function manifestOf(layers: readonly unknown[]) {
  return { schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json", layers };
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? "", `http://${host}`);
  asked.push(`${url.pathname}${url.search}`);
  if (url.pathname === "/token") {
    response.end(JSON.stringify({ token: "anonymous" }));
  } else if (registry.authenticate && request.headers.authorization !== "Bearer anonymous") {
    response.writeHead(401, { "www-authenticate": registry.authenticate }).end();
  } else if (url.pathname.startsWith("/v2/team/model/manifests/")) {
    response.end(JSON.stringify(registry.manifest));
  } else if (url.pathname.startsWith("/v2/team/model/blobs/")) {
    response.writeHead(200, { "content-length": registry.blob.length }).end(registry.blob);
  } else {
    response.writeHead(404).end();
  }
}

function pull(reference = "team/model:1.0", more: Partial<WeightsSpec> = {}, verified = true) {
  const sources = [`oci://${host}/${reference}`];
  return pullWeights(
    { key: "m", file: "model.gguf", sources, sha256, ...more },
    {
      cacheDirectory: cache,
      signal: AbortSignal.timeout(50_000),
      allowedHosts: ["127.0.0.1"],
      allowUnverified: !verified,
      env: {},
      limits: { retryBaseMs: 1, retryMaxMs: 2 },
    },
  );
}

describe("an oci:// source", () => {
  it("is the layer titled as the file, got with an anonymous token", async () => {
    const path = await pull();
    expect(Buffer.compare(await readFile(path), content)).toBe(0);
    expect(asked).toEqual([
      "/v2/team/model/manifests/1.0",
      "/token?service=registry&scope=repository%3Ateam%2Fmodel%3Apull",
      "/v2/team/model/manifests/1.0",
      `/v2/team/model/blobs/sha256:${sha256}`,
    ]);
  });

  it("is the only layer where none is titled, and needs no token of an open registry", async () => {
    registry.authenticate = undefined;
    registry.manifest = manifestOf([layer(content)]);
    await pull();
    expect(asked.length).toBe(2);
  });

  it("may be named by the manifest's digest, which is checked", async () => {
    const digest = digestOf(JSON.stringify(registry.manifest));
    await pull(`team/model@sha256:${digest}`);
    const wrong = pull(`team/model@sha256:${"0".repeat(64)}`, { key: "other" });
    await expect(wrong).rejects.toThrow(`the manifest has the digest sha256:${digest}`);
  });

  it("is refused before the download where the layer has another digest", async () => {
    registry.manifest = manifestOf([layer(Buffer.from("other"), "model.gguf")]);
    await expect(pull()).rejects.toThrow(`instead of ${sha256}`);
    expect(asked.some((path) => path.includes("/blobs/"))).toBe(false);
  });

  it("is refused where the blob lacks the layer's digest, also if the spec has none", async () => {
    registry.blob = Buffer.alloc(content.length);
    await expect(pull("team/model:1", { sha256: undefined }, false)).rejects.toThrow(
      "the layer does not have its digest",
    );
  });

  it("reports a manifest that has no such layer, is an index or is no JSON", async () => {
    registry.manifest = manifestOf([layer(content, "a"), layer(content, "b")]);
    await expect(pull()).rejects.toThrow("none of its 2 layers is titled model.gguf");
    registry.manifest = { manifests: [] };
    await expect(pull()).rejects.toThrow("not an artifact with layers");
    registry.manifest = manifestOf([{ digest: "sha512:00", size: 1 }]);
    await expect(pull()).rejects.toThrow("the layer's digest sha512:00 is not a SHA-256");
    registry.manifest = manifestOf([{ ...layer(content), size: "many" }]);
    await expect(pull()).rejects.toThrow(`the layer's size "many" is not a number of bytes`);
  });

  it("says that a repository is absent or wants a login", async () => {
    registry.authenticate = undefined;
    await expect(pull("team/none:1")).rejects.toThrow("answers 404");
    registry.authenticate = 'Basic realm="x"';
    await expect(pull()).rejects.toThrow("wants a login of a kind that is not supported");
  });

  it("asks no token service on a host that is not allowed", async () => {
    registry.authenticate = 'Bearer realm="https://evil.example/token"';
    await expect(pull()).rejects.toThrow("evil.example is not on the allow-list");
  });

  it("is not asked at all where its host is not allowed", async () => {
    const spec = { key: "m", file: "model.gguf", sources: [`oci://${host}/team/model:1`], sha256 };
    const options = { cacheDirectory: cache, signal: AbortSignal.timeout(100_000), env: {} };
    await expect(pullWeights(spec, options)).rejects.toThrow("not on the allow-list");
    expect(asked).toEqual([]);
  });
});
