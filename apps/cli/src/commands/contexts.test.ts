// holds: cli-contexts

import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { runCaptured } from "../testing/captured-run.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-contexts-"));
const file = join(folder, "contexts.json");
const keyFile = join(folder, "key");
const asked: IncomingHttpHeaders[] = [];
const server = createServer((request, response) => {
  asked.push(request.headers);
  response.writeHead(200, { "content-type": "application/json" }).end('{"data":[]}');
});
let endpoint = "";
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  writeFileSync(keyFile, "hdl_key\n");
});
afterAll(() => {
  server.close();
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  rmSync(file, { force: true });
  asked.length = 0;
  vi.stubEnv("HEDDLE_DATA", folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
});

const heddle = (...args: string[]) => runCaptured(args);

test("contexts: commands call the one in use, with its key and project", async () => {
  const set = ["context", "set", "prod", "--endpoint", `${endpoint}/api/v1`];
  const how = ["--api-key-file", keyFile, "--project", "vision"];
  expect(await heddle(...set, ...how)).toMatchObject({ code: 0 });
  expect((await heddle("context", "use", "prod")).stderr).toBe(`commands call ${endpoint}\n`);
  expect((await heddle("workers", "list")).code).toBe(0);
  expect(asked).toMatchObject([{ authorization: "Bearer hdl_key", "x-heddle-project": "vision" }]);
  // The key is in its own file alone, and the file is the user's.
  expect(readFileSync(file, "utf8")).not.toContain("hdl_key");
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const { stdout } = await heddle("context", "list");
  expect(stdout).toMatch(/^local +- +http/m);
  expect(stdout).toMatch(/^prod +\* +http\S+ +vision$/m);
});

test("contexts: flags and variables go before them, and get none of their keys", async () => {
  await heddle(
    "context",
    "set",
    "away",
    "--endpoint",
    "http://127.0.0.1:9",
    "--api-key-file",
    keyFile,
  );
  await heddle("context", "use", "away");
  vi.stubEnv("HEDDLE_ENDPOINT", endpoint);
  expect((await heddle("workers", "list")).code).toBe(0);
  vi.stubEnv("HEDDLE_ENDPOINT", "http://127.0.0.1:9");
  expect((await heddle("workers", "list", "--endpoint", endpoint)).code).toBe(0);
  expect(asked.map(({ authorization }) => authorization)).toEqual([undefined, undefined]);
  expect((await heddle("context", "use", "local")).stderr).toContain("HEDDLE_ENDPOINT goes before");
});

test("contexts: one that is changed keeps the rest; a removed one is used no more", async () => {
  await heddle("context", "set", "a", "--endpoint", endpoint, "--project", "p");
  await heddle("context", "set", "a", "--api-key-file", keyFile);
  const { stdout } = await heddle("context", "list", "-o", "json");
  expect(JSON.parse(stdout)).toContainEqual({
    name: "a",
    endpoint,
    project: "p",
    apiKeyFile: keyFile,
    current: false,
  });
  await heddle("context", "use", "a");
  expect((await heddle("context", "remove", "a")).code).toBe(0);
  expect((await heddle("context", "list", "-o", "name")).stdout).toBe("local\n");
  expect((await heddle("context", "list")).stdout).toMatch(/^local +\*/m);
});

test.each([
  [["use", "none"], 3, "There is no context none; there are: local."],
  [["remove", "local"], 3, "There is no context local"],
  [["set", "b"], 2, "give --endpoint <url>"],
  [["set", "local", "--endpoint", "http://a"], 2, "cannot be the name of a context"],
  [["set", "b", "--endpoint", "nowhere"], 2, "is not a valid endpoint"],
])("contexts: `context %s` is refused", async (args, code, words) => {
  const refused = await heddle("context", ...args);
  expect(refused.stderr).toContain(words);
  expect(refused.code).toBe(code);
});

test("contexts: a missing key file or a damaged file is named", async () => {
  await heddle("context", "set", "c", "--endpoint", endpoint, "--api-key-file", join(folder, "no"));
  await heddle("context", "use", "c");
  const missing = await heddle("workers", "list");
  expect(missing.stderr).toMatch(/the API key of the context c .*no does not exist/);
  writeFileSync(file, '{"contexts": 1}');
  const damaged = await heddle("workers", "list");
  expect(damaged.stderr).toContain(`${file} is damaged. Delete it`);
  expect(asked).toEqual([]);
});
