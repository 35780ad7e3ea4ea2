// holds: access-login

import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { IssuerKeys } from "@heddle/auth/oidc/issuer-keys";
import { IdentityProvider } from "@heddle/auth/oidc/testing/identity-provider";
import { TokenVerifier } from "@heddle/auth/oidc/token-verifier";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { runCaptured } from "../testing/captured-run.ts";
import { ScriptedBrowser } from "./testing/scripted-browser.ts";
import { TokenStore } from "./token-store.ts";

let provider: IdentityProvider;
let verifier: TokenVerifier;
let data: string;

/** A cluster that names the provider, and verifies tokens as masters do. */
const cluster = createServer(async (request, response) => {
  const send = (status: number, body: object) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  if (request.url === "/api/v1/access/methods") {
    const { issuer, audience } = provider;
    const oauth2 = { issuer, client_id: "heddle-cli", audience: [audience] };
    const asked = { scopes: ["openid", "offline_access"], parameters: { resource: audience } };
    send(200, { object: "access_methods", methods: ["oauth2"], oauth2: { ...oauth2, ...asked } });
    return;
  }
  const token = request.headers.authorization?.replace("Bearer ", "") ?? "";
  const user = await verifier.verify(token).catch(() => undefined);
  if (!user) return send(401, { code: "invalid_api_key", detail: "Refused." });
  const caller = { object: "caller", id: user.id, kind: "user", name: user.subject };
  send(200, {
    ...caller,
    project: request.headers["x-heddle-project"] ?? "default",
    permissions: [],
    projects: [],
  });
});
const endpoint = () => `http://127.0.0.1:${(cluster.address() as AddressInfo).port}`;

beforeAll(async () => {
  provider = await IdentityProvider.start();
  const { issuer, audience } = provider;
  const keys = new IssuerKeys({ issuer, now: () => performance.now() });
  const claims = { user: "sub", groups: undefined, roles: undefined, rolesPrefix: "" };
  const rules = { issuer, audience: [audience], algorithms: ["RS256"], clockSkewS: 5, claims };
  verifier = new TokenVerifier({ ...rules, tokenTypes: ["at+jwt"] }, keys.find, Date.now);
  await new Promise<void>((resolve) => cluster.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  cluster.closeAllConnections();
  cluster.close();
  await provider.close();
});
beforeEach(() => {
  data = mkdtempSync(join(tmpdir(), "heddle-login-"));
});
afterEach(() => rmSync(data, { recursive: true, force: true }));

/** Runs a command; `seen` gets what standard error has so far. */
async function heddle(words: string, seen?: (text: string) => void) {
  vi.stubEnv("HEDDLE_DATA", data);
  vi.stubEnv("HEDDLE_ENDPOINT", endpoint());
  vi.stubEnv("HEDDLE_API_KEY", "");
  try {
    return await runCaptured(words.split(" "), seen);
  } finally {
    vi.unstubAllEnvs();
  }
}

/** Calls once, with the first match. */
function once(pattern: RegExp, call: (found: string) => void): (text: string) => void {
  let isDone = false;
  return (text) => {
    const found = pattern.exec(text)?.[1];
    if (found === undefined || isDone) return;
    isDone = true;
    call(found);
  };
}

const byBrowser = () =>
  heddle(
    "auth login --no-browser",
    once(/\n {2}(http\S+)\n/, (url) => void new ScriptedBrowser().open(url)),
  );

it("auth login: signs in by the browser, and only the user reads the tokens", async () => {
  const ended = await byBrowser();
  expect([ended.code, ended.stderr]).toEqual([0, expect.stringContaining("signed in as alice")]);
  const file = join(data, "tokens.json");
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const { accessToken } = new TokenStore(data).get(endpoint()) ?? {};
  expect(`${ended.stdout}${ended.stderr}`).not.toContain(accessToken);
  const status = await heddle("auth status");
  expect([status.code, status.stdout]).toEqual([0, expect.stringMatching(/user +alice/)]);
  expect((await heddle("auth token")).stdout.trim()).toBe(accessToken);
});

it("auth login: a token that soon expires is renewed, by one process at a time", async () => {
  await byBrowser();
  const store = new TokenStore(data);
  const login = store.get(endpoint());
  if (!login) throw new Error("it is signed in");
  store.set(endpoint(), { ...login, accessToken: "stale", expiresAtMs: Date.now() + 1_000 });
  const { freshToken } = await import("./fresh-token.ts");
  const tokens = await Promise.all([1, 2, 3, 4].map(() => freshToken(store, endpoint())));
  expect(new Set(tokens).size).toBe(1);
  expect(await verifier.verify(tokens[0] ?? "")).toMatchObject({ subject: "alice" });
  expect((await heddle("auth status")).code).toBe(0);
});

it("auth login --device: signs in with a code on another device", async () => {
  const ended = await heddle(
    "auth login --device",
    once(/or open (http\S+)\n/, async (url) => {
      const browser = new ScriptedBrowser();
      const form = await browser.open(url);
      const page = `${provider.issuer}/device`;
      const confirm = await browser.submit(page, form, {});
      if (confirm.includes("confirm")) await browser.submit(page, confirm, { confirm: "yes" });
    }),
  );
  expect([ended.code, ended.stderr]).toEqual([0, expect.stringContaining("signed in as alice")]);
});

it("auth logout: ends the sign-in here and at the provider", async () => {
  await byBrowser();
  const { refreshToken = "" } = new TokenStore(data).get(endpoint()) ?? {};
  const ended = await heddle("auth logout");
  expect([ended.code, ended.stderr]).toEqual([0, expect.stringContaining("signed out")]);
  expect(readFileSync(join(data, "tokens.json"), "utf8")).not.toContain(refreshToken);
  const status = await heddle("auth status");
  expect(status.code).toBe(4);
  const { refreshTokens } = await import("./provider.ts");
  const of = { issuer: provider.issuer, clientId: "heddle-cli", scopes: [], parameters: {} };
  await expect(refreshTokens(of, refreshToken)).rejects.toMatchObject({ code: "invalid_api_key" });
});

it("auth token: prints a service's token by its secret, and says when it is refused", async () => {
  const secret = join(data, "secret");
  writeFileSync(secret, "robot-secret-of-the-test\n");
  const words = `auth token --client-id robot --client-secret-file ${secret}`;
  const { code, stdout } = await heddle(words);
  expect(code).toBe(0);
  expect(await verifier.verify(stdout.trim())).toMatchObject({ subject: "robot" });
  writeFileSync(secret, "wrong");
  const refused = await heddle(words);
  expect([refused.code, refused.stderr]).toEqual([4, expect.stringContaining("refused")]);
});

it("auth status: asks for the project of HEDDLE_PROJECT", async () => {
  await byBrowser();
  vi.stubEnv("HEDDLE_PROJECT", "vision");
  expect((await heddle("auth status")).stdout).toMatch(/alice +vision/);
});

it("auth: without a sign-in, or with a damaged file, it says what to do", async () => {
  const none = await heddle("auth token");
  expect([none.code, none.stderr]).toEqual([4, expect.stringContaining("heddle auth login")]);
  writeFileSync(join(data, "tokens.json"), "{");
  const damaged = await heddle("auth status");
  expect([damaged.code, damaged.stderr]).toEqual([2, expect.stringContaining("is damaged")]);
});
