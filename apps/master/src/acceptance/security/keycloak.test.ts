// holds: access-independent-provider

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { decodeJwt, decodeProtectedHeader } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Keycloak } from "../../../test/identity/keycloak.ts";
import { KeycloakUser } from "../../../test/identity/keycloak-user.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

// A master and the real command line with an identity provider that shares no code with them.

const PASSWORD = "alice's password";
const SECRET = "secret-of-the-client";
/** A verified token is trusted for 40 s; what a provider ends must show within 60 s. */
const REVOKED_MS = 60_000;

const why = Keycloak.problem();
if (why) process.stdout.write(`skipped: a master with Keycloak: ${why}\n`);

const folder = mkdtempSync(join(tmpdir(), "heddle-keycloak-"));
let provider: Keycloak;
let master: TestMaster;

function realm(consoleUrl: string): object {
  const mapper = (name: string, kind: string, config: object) => ({
    name,
    protocol: "openid-connect",
    protocolMapper: kind,
    config: { "access.token.claim": "true", ...config },
  });
  const protocolMappers = [
    mapper("audience", "oidc-audience-mapper", { "included.custom.audience": "heddle" }),
    mapper("groups", "oidc-group-membership-mapper", {
      "claim.name": "groups",
      "full.path": "false",
    }),
  ];
  const session = `${consoleUrl}/console/session`;
  const client = { protocolMappers, directAccessGrantsEnabled: false };
  const secret = { ...client, secret: SECRET, publicClient: false };
  return {
    realm: "heddle",
    enabled: true,
    sslRequired: "none",
    groups: [{ name: "platform" }],
    users: [
      {
        username: "alice",
        enabled: true,
        email: "alice@example.com",
        firstName: "Alice",
        lastName: "A",
        groups: ["platform"],
        credentials: [{ type: "password", value: PASSWORD }],
      },
    ],
    clients: [
      {
        ...client,
        clientId: "heddle-cli",
        publicClient: true,
        redirectUris: ["http://127.0.0.1/callback"],
        attributes: { "oauth2.device.authorization.grant.enabled": "true" },
      },
      {
        ...secret,
        clientId: "heddle-console",
        redirectUris: [`${session}/callback`],
        attributes: {
          "backchannel.logout.url": `${session}/backchannel-logout`,
          "backchannel.logout.session.required": "true",
        },
      },
      { ...secret, clientId: "robot", serviceAccountsEnabled: true, standardFlowEnabled: false },
    ],
  };
}

function authFile(consoleUrl: string): string {
  const [file, secret] = [join(folder, "auth.json"), join(folder, "secret")];
  writeFileSync(secret, SECRET);
  const { issuer } = provider;
  const oauth2 = {
    issuer,
    audience: "heddle",
    client_id: "heddle-cli",
    // Offline sessions would outlive the end of the user's own.
    scopes: ["openid"],
    claims: { user: "preferred_username", groups: "groups" },
    introspection: {
      endpoint: `${issuer}/protocol/openid-connect/token/introspect`,
      client_id: "robot",
      client_secret_file: secret,
    },
    console: { public_url: consoleUrl, client_id: "heddle-console", client_secret_file: secret },
  };
  const bindings = [
    { kind: "group", subject: "platform", role: "operator" },
    { kind: "user", subject: "service-account-robot", role: "viewer" },
  ];
  writeFileSync(file, JSON.stringify({ method: "oauth2", oauth2, rbac: { bindings } }));
  return file;
}

/** Runs a command in a data directory; `seen` gets what it has said so far, until it is true. */
async function heddle(data: string, words: string, seen: (said: string) => boolean = () => true) {
  const { PATH, NODE_COMPILE_CACHE } = process.env;
  const env = { PATH, NODE_COMPILE_CACHE, HEDDLE_DATA: data, HEDDLE_ENDPOINT: master.url };
  const child = spawn(process.execPath, [programOf("cli"), ...words.split(" ")], { env });
  let stderr = "";
  let isSeen = false;
  child.stderr.setEncoding("utf8").on("data", (piece: string) => {
    stderr += piece;
    if (!isSeen) isSeen = seen(stderr);
  });
  const stdout = text(child.stdout);
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, stdout: (await stdout).trim(), stderr };
}

/** Opens the address that a command shows, as alice. */
function opened(pattern: RegExp, user = new KeycloakUser("alice", PASSWORD)) {
  return (said: string): boolean => {
    const url = pattern.exec(said)?.[1];
    if (url === undefined) return false;
    void user.open(url);
    return true;
  };
}

const signedIn = async (data: string) => {
  const ended = await heddle(data, "auth login --no-browser", opened(/\n {2}(http\S+)\n/));
  expect([ended.code, ended.stderr]).toEqual([0, expect.stringContaining("signed in as alice")]);
  return (await heddle(data, "auth token")).stdout;
};

const whoami = (token: string) =>
  fetch(`${master.url}/api/v1/access/whoami`, { headers: { authorization: `Bearer ${token}` } });

describe.skipIf(why !== undefined)("a master with Keycloak", () => {
  beforeAll(async () => {
    const port = await freePort();
    const consoleUrl = `http://127.0.0.1:${port}`;
    provider = new Keycloak(await freePort());
    await provider.start(folder, realm(consoleUrl));
    master = await startTestMaster({ authFile: authFile(consoleUrl), httpPort: port });
    await eventually(() => master.control.state.bindings.size === 2, "the roles are bound");
  });
  afterAll(async () => {
    await master?.master.close();
    await provider?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it("signs people in by browser, with the roles of their groups", async () => {
    const data = join(folder, "browser");
    const token = await signedIn(data);
    const status = await heddle(data, "auth status -o json");
    expect(JSON.parse(status.stdout)).toMatchObject({ kind: "user", name: "alice" });
    expect(status.stdout).toContain("models:*");
    expect((await whoami(token)).status).toBe(200);
    const other = token.slice(0, -4) + (token.endsWith("AAAA") ? "BBBB" : "AAAA");
    expect((await whoami(other)).status).toBe(401);
  });

  it("signs people in by a code on another device", async () => {
    const data = join(folder, "device");
    const ended = await heddle(data, "auth login --device", opened(/or open (http\S+)\n/));
    expect([ended.code, ended.stderr]).toEqual([0, expect.stringContaining("signed in as alice")]);
  });

  it("takes services by their client's secret, with their own role", async () => {
    const file = join(folder, "secret");
    const words = `auth token --client-id robot --client-secret-file ${file}`;
    const { code, stdout, stderr } = await heddle(join(folder, "robot"), words);
    expect([code, stderr]).toEqual([0, ""]);
    expect(await (await whoami(stdout)).json()).toMatchObject({ name: "service-account-robot" });
  });

  it("takes tokens of a new key at once, and those of the one before", async () => {
    const data = join(folder, "rotated");
    const before = await signedIn(data);
    await provider.manage("POST", "/admin/realms/heddle/components", {
      name: "newer",
      providerId: "rsa-generated",
      providerType: "org.keycloak.keys.KeyProvider",
      config: { priority: ["200"] },
    });
    // Unknown keys make a master read them at most every 10 s.
    await eventually(async () => (await whoami(await signedIn(data))).ok, "the new key is known");
    const after = (await heddle(data, "auth token")).stdout;
    expect(decodeProtectedHeader(after).kid).not.toBe(decodeProtectedHeader(before).kid);
    expect((await whoami(before)).status).toBe(200);
  });

  it("sees within a minute that a session was ended at the provider", async () => {
    const token = await signedIn(join(folder, "revoked"));
    expect((await whoami(token)).status).toBe(200);
    const { sub } = decodeJwt(token);
    await provider.manage("POST", `/admin/realms/heddle/users/${sub}/logout`);
    const beganMs = performance.now();
    const isRefused = async () => (await whoami(token)).status === 401;
    await eventually(isRefused, "the token is refused", 2 * REVOKED_MS);
    expect(performance.now() - beganMs).toBeLessThan(REVOKED_MS);
  });

  it("renews a token, and is signed out at the provider by auth logout", async () => {
    const data = join(folder, "logout");
    const first = await signedIn(data);
    const file = join(data, "tokens.json");
    const soon = `"expiresAtMs": ${Date.now() + 1_000}`;
    writeFileSync(file, readFileSync(file, "utf8").replace(/"expiresAtMs": \d+/, soon));
    const token = (await heddle(data, "auth token")).stdout;
    expect([token === first, (await whoami(token)).status]).toEqual([false, 200]);
    const ended = await heddle(data, "auth logout");
    expect([ended.code, ended.stderr]).toEqual([0, expect.stringMatching(/^signed out of \S+\n$/)]);
    await eventually(async () => (await whoami(token)).status === 401, "it ends", 2 * REVOKED_MS);
    expect((await heddle(data, "auth status")).code).toBe(4);
  });

  it("signs browsers in to the console until the provider ends the session", async () => {
    const user = new KeycloakUser("alice", PASSWORD);
    const { url } = master;
    expect(await user.open(`${url}/console/session/login?to=/console/jobs`)).toBe(
      `${url}/console/jobs`,
    );
    const state = (await (await user.browser.ask(`${url}/console/session`)).json()) as {
      readonly csrf: string;
    };
    const asked = () =>
      user.browser.ask(`${url}/api/v1/access/whoami`, {
        headers: { "x-heddle-csrf": state.csrf },
      });
    const reply = await asked();
    const caller = (await reply.json()) as { readonly name: string };
    expect([reply.status, caller.name]).toEqual([200, "alice"]);
    const users = await provider.manage("GET", "/admin/realms/heddle/users?username=alice");
    const [{ id }] = users as [{ readonly id: string }];
    await provider.manage("POST", `/admin/realms/heddle/users/${id}/logout`);
    // The back channel is sooner than the token's own revocation is seen.
    await eventually(async () => (await asked()).status === 401, "the session ends", 10_000);
  });

  it("refuses the provider's ID tokens and tokens of its other clients", async () => {
    const form = { grant_type: "password", client_id: "admin-cli", username: "alice" };
    const reply = await fetch(`${provider.issuer}/protocol/openid-connect/token`, {
      method: "POST",
      body: new URLSearchParams({ ...form, password: PASSWORD, scope: "openid" }),
    });
    const { access_token, id_token } = (await reply.json()) as Record<string, string>;
    for (const token of [access_token, id_token]) {
      expect((await whoami(token ?? "")).status, token).toBe(401);
    }
  });
});
