import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { clientOf, findConnection } from "./connection.ts";

const directory = mkdtempSync(join(tmpdir(), "heddle-connection-"));
const file = join(directory, "credentials.json");
const env = { HEDDLE_DATA: directory };
beforeEach(() => {
  writeFileSync(file, '{"endpoint":"http://127.0.0.1:9001","api_key":"from-file"}');
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe("connection", () => {
  // holds: cli-address-and-key
  it("precedence: flag, environment, credentials file, default", () => {
    const variable = { ...env, HEDDLE_ENDPOINT: "http://variable:1" };
    expect(findConnection({ endpoint: "http://flag:1" }, variable).endpoint).toBe("http://flag:1");
    expect(findConnection({}, variable).endpoint).toBe("http://variable:1");
    expect(findConnection({}, env).endpoint).toBe("http://127.0.0.1:9001");
    rmSync(file);
    expect(findConnection({}, env)).toEqual({
      endpoint: "http://127.0.0.1:8080",
      apiKey: undefined,
      endpointSource: "default",
    });
  });

  it("without a key: says that the local cluster's key is for another endpoint", async () => {
    const server = createServer((_request, response) => response.writeHead(401).end());
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const listed = (variables: object) =>
      clientOf(findConnection({}, { ...env, ...variables }), 0).workers.list();
    await expect(listed({ HEDDLE_ENDPOINT: endpoint })).rejects.toThrow(
      `No API key was sent: the key of \`heddle up\` is sent to its own cluster only, and ${endpoint} (from HEDDLE_ENDPOINT) is another.`,
    );
    server.close();
    await expect(listed({ HEDDLE_ENDPOINT: endpoint })).rejects.toThrow(
      `No answer from ${endpoint} (ECONNREFUSED; the address is from HEDDLE_ENDPOINT).`,
    );
  });

  // holds: cli-address-and-key
  it("the key has the same precedence", () => {
    const variable = { ...env, HEDDLE_API_KEY: "from-variable" };
    expect(findConnection({ apiKey: "from-flag" }, variable).apiKey).toBe("from-flag");
    expect(findConnection({}, variable).apiKey).toBe("from-variable");
    expect(findConnection({}, env).apiKey).toBe("from-file");
  });

  it("refuses a key that no header can carry, without printing it", () => {
    const torn = { ...env, HEDDLE_API_KEY: "hdl_live\nsecret" };
    expect(() => findConnection({}, torn)).toThrow(/^The API key \(from HEDDLE_API_KEY\) has char/);
    expect(() => findConnection({ apiKey: "a secret" }, env)).toThrow(/^(?!.*secret)/);
    // Trailing whitespace of a key file is not part of the key.
    expect(findConnection({ apiKey: "whole\r\n" }, env).apiKey).toBe("whole");
  });

  it("sends the file's key to the file's endpoint only", () => {
    expect(findConnection({ endpoint: "http://elsewhere:1" }, env).apiKey).toBeUndefined();
    expect(findConnection({ endpoint: "http://127.0.0.1:9001/api/v1/" }, env)).toEqual({
      endpoint: "http://127.0.0.1:9001",
      apiKey: "from-file",
      endpointSource: "--endpoint",
    });
  });

  it("treats localhost as the file's address of this machine, and no other name", () => {
    for (const endpoint of ["http://localhost:9001", "http://localhost:9001/api/v1"]) {
      expect(findConnection({}, { ...env, HEDDLE_ENDPOINT: endpoint })).toMatchObject({
        endpoint: "http://127.0.0.1:9001",
        apiKey: "from-file",
      });
    }
    for (const endpoint of ["http://localhost:9002", "http://localhost.evil:9001"]) {
      expect(findConnection({ endpoint }, env)).toMatchObject({ endpoint, apiKey: undefined });
    }
  });

  it("sends the file's key to every master that the file names", () => {
    const endpoints = [9001, 9002, 9003].map((port) => `http://127.0.0.1:${port}`);
    writeFileSync(file, JSON.stringify({ endpoint: endpoints[0], endpoints, api_key: "shared" }));
    for (const endpoint of endpoints) {
      expect(findConnection({ endpoint }, env)).toMatchObject({ endpoint, apiKey: "shared" });
    }
    // A named endpoint is used alone; otherwise the others are fallbacks.
    expect(findConnection({ endpoint: endpoints[1] }, env).others).toBeUndefined();
    const [endpoint, ...others] = endpoints;
    expect(findConnection({}, env)).toMatchObject({ endpoint, others });
    expect(findConnection({ endpoint: "http://127.0.0.1:9004" }, env).apiKey).toBeUndefined();
  });

  it("refuses an invalid address and names its source", () => {
    const bad = { ...env, HEDDLE_ENDPOINT: "localhost:8080" };
    expect(() => findConnection({}, bad)).toThrow('"localhost:8080" (from HEDDLE_ENDPOINT)');
  });

  it("refuses a damaged credentials file with its path", () => {
    for (const text of [
      "{",
      '{"endpoint": 1}',
      "null",
      '{"endpoint": "http://h", "endpoints": [1], "api_key": "k"}',
    ]) {
      writeFileSync(file, text);
      expect(() => findConnection({}, env)).toThrow(`${file} is damaged`);
    }
  });
});
