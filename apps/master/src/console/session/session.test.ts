// holds: console-oidc

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { CodeSignIn } from "@heddle/auth/oidc/code-sign-in";
import { Browser } from "@heddle/auth/oidc/testing/browser";
import { IdentityProvider } from "@heddle/auth/oidc/testing/identity-provider";
import { KeyServer, signedToken, signingKey } from "@heddle/auth/oidc/testing/key-server";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestMaster, TEST_PEPPER, type TestMaster } from "../../../test/test-master.ts";
import { ConsoleSessions } from "../../http/identity/console-sessions.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-console-session-"));
const SECRET = "console-secret-of-the-test";

/** The settings of a master whose console is at that port. */
function authFile(
  name: string,
  issuer: string,
  audience: string,
  port: number,
  more: { readonly console?: object; readonly oauth2?: object } = {},
): string {
  const [file, secret] = [join(folder, `${name}.json`), join(folder, `${name}.secret`)];
  writeFileSync(secret, `${SECRET}\n`);
  const console = {
    public_url: `http://127.0.0.1:${port}`,
    client_id: "heddle-console",
    client_secret_file: secret,
    ...more.console,
  };
  const bindings = [{ kind: "user", subject: "alice", role: "developer", project: "vision" }];
  const oauth2 = { issuer, audience, console, ...more.oauth2 };
  writeFileSync(file, JSON.stringify({ method: "oauth2", oauth2, rbac: { bindings } }));
  return file;
}

let provider: IdentityProvider;
let server: TestMaster;
let url: string;
beforeAll(async () => {
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  provider = await IdentityProvider.start(url);
  const file = authFile("provider", provider.issuer, provider.audience, port);
  server = await startTestMaster({ authFile: file, httpPort: port });
  await eventually(() => server.control.state.bindings.has("user:alice"), "alice has her role");
});
afterAll(async () => {
  await server.master.close();
  await provider.close();
  rmSync(folder, { recursive: true, force: true });
});

interface State {
  readonly signed_in: boolean;
  readonly csrf: string;
}

const stateOf = async (browser: Browser) =>
  (await (await browser.ask(`${url}/console/session`)).json()) as State;

async function signedIn(): Promise<{ browser: Browser; csrf: string }> {
  const browser = new Browser();
  const end = await browser.follow(`${url}/console/session/login?to=/console/jobs`);
  expect(end).toBe(`${url}/console/jobs`);
  const { signed_in, csrf } = await stateOf(browser);
  expect(signed_in).toBe(true);
  return { browser, csrf };
}

const whoami = (browser: Browser, headers: Record<string, string> = {}) =>
  browser.ask(`${url}/api/v1/access/whoami`, { headers });

describe("the console's session", () => {
  it("is signed in by the provider, and has the user's roles", async () => {
    const { browser, csrf } = await signedIn();
    const reply = await whoami(browser, { "x-heddle-csrf": csrf });
    expect(await reply.json()).toMatchObject({ kind: "user", name: "alice", project: "vision" });
    const cookies = browser.set.filter((each) => each.startsWith("heddle_session="));
    expect(cookies.length).toBeGreaterThan(0);
    for (const cookie of cookies) expect(cookie).toMatch(/; HttpOnly; SameSite=Strict$/);
    expect(browser.set.join()).not.toContain("eyJ");
  });

  it("counts only with its own proof, and changes nothing without it", async () => {
    const { browser, csrf } = await signedIn();
    const other = await signedIn();
    for (const headers of [{}, { "x-heddle-csrf": other.csrf }, { "x-heddle-csrf": "" }]) {
      expect((await whoami(browser, headers as Record<string, string>)).status).toBe(403);
      const logout = { method: "POST", headers: headers as Record<string, string> };
      expect((await browser.ask(`${url}/console/session/logout`, logout)).status).toBe(403);
    }
    expect((await whoami(browser, { "x-heddle-csrf": csrf })).status).toBe(200);
    const key = { authorization: `Bearer ${server.adminKey}` };
    expect(await (await whoami(browser, key)).json()).toMatchObject({ kind: "key" });
    // A key names the caller, also a wrong one.
    const wrong = { authorization: "Bearer x", "x-heddle-csrf": csrf };
    expect((await whoami(browser, wrong)).status).toBe(401);
    expect((await whoami(browser, { "x-api-key": "x", "x-heddle-csrf": csrf })).status).toBe(401);
  });

  it("is none where the cookie was changed, doubled or is of the sign-in", async () => {
    const { browser, csrf } = await signedIn();
    const cookie = browser.cookies(new URL(url).host);
    const first = /heddle_session=[^;]*/.exec(cookie)?.[0] ?? "";
    const value = first.slice(first.indexOf("=") + 1);
    const tries = [
      cookie.replace(value.slice(20, 24), "AAAA"),
      `${cookie}; ${first}`,
      `heddle_session=${value.slice(0, 100)}`,
      `heddle_sign_in=${value}`,
    ];
    for (const each of tries) {
      const reply = await fetch(`${url}/api/v1/access/whoami`, {
        headers: { cookie: each, "x-heddle-csrf": csrf },
      });
      expect(reply.status, each.slice(0, 30)).toBe(401);
    }
  });

  it("ends with its logout on every master, also for a copy of the cookie", async () => {
    const { browser, csrf } = await signedIn();
    const copy = browser.cookies(new URL(url).host);
    const headers = { "x-heddle-csrf": csrf };
    const logout = await browser.ask(`${url}/console/session/logout`, { method: "POST", headers });
    const { logout_url } = (await logout.json()) as { logout_url: string };
    expect(logout_url).toContain(`${provider.issuer}/session/end`);
    expect(await stateOf(browser)).toMatchObject({ signed_in: false });
    const reply = await fetch(`${url}/api/v1/access/whoami`, {
      headers: { ...headers, cookie: copy },
    });
    expect(reply.status).toBe(401);
    expect([...server.control.snapshot()].join()).not.toContain("alice\\");
  });

  it("ends when the provider ends its own, which it says by back channel", async () => {
    const { browser, csrf } = await signedIn();
    const other = await signedIn();
    const page = await (await browser.ask(`${provider.issuer}/session/end`)).text();
    const xsrf = /name="xsrf" value="([^"]+)"/.exec(page)?.[1] ?? "";
    const action = /action="([^"]+)"/.exec(page)?.[1] ?? "";
    await browser.ask(action, {
      method: "POST",
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ xsrf, logout: "yes" }).toString(),
    });
    const isEnded = async () => (await whoami(browser, { "x-heddle-csrf": csrf })).status;
    await expect.poll(isEnded).toBe(401);
    expect((await whoami(other.browser, { "x-heddle-csrf": other.csrf })).status).toBe(200);
  });

  it.each([
    "//evil.example",
    "https://evil.example",
    "/\\evil.example",
    "/console/..//evil.example",
    "/console/%2e%2e/api/v1/keys",
    "/console/./session/login",
    "/api/v1/keys",
    "/console/session/logout",
  ])("leads to no other place than the console: %s", async (to) => {
    const login = `${url}/console/session/login?to=${encodeURIComponent(to)}`;
    expect(await new Browser().follow(login)).toBe(`${url}/console/`);
  });

  it("is not begun by an answer that another browser asked for", async () => {
    const thief = new Browser();
    const begun = await thief.ask(`${url}/console/session/login`);
    const asked = new URL(begun.headers.get("location") ?? "");
    const state = asked.searchParams.get("state") ?? "";
    const victim = new Browser();
    await victim.ask(`${url}/console/session/login`);
    for (const query of [`code=x&state=${state}`, "code=x", "error=access_denied", ""]) {
      const reply = await victim.ask(`${url}/console/session/callback?${query}`);
      expect(reply.headers.get("location")).toMatch(/^\/console\/#sign-in-failed=\w+$/);
      expect(await stateOf(victim)).toMatchObject({ signed_in: false });
      await victim.ask(`${url}/console/session/login`);
    }
  });
});

// holds: console-renewal
describe("a session that its provider renews", () => {
  /** The life of an access token: long enough for a sign-in on a loaded machine. */
  const LIFE_S = 8;
  let renewing: IdentityProvider;
  let master: TestMaster;
  let at: string;
  beforeAll(async () => {
    const port = await freePort();
    at = `http://127.0.0.1:${port}`;
    renewing = await IdentityProvider.start(at, 0, LIFE_S);
    const { issuer, audience } = renewing;
    const scopes = ["openid", "offline_access"];
    const more = { console: { scopes }, oauth2: { clock_skew_seconds: 0 } };
    const file = authFile("renewing", issuer, audience, port, more);
    master = await startTestMaster({ authFile: file, httpPort: port });
    await eventually(() => master.control.state.bindings.has("user:alice"), "alice has her role");
  });
  afterAll(async () => {
    await master.master.close();
    await renewing.close();
  });

  /** The sessions as another master of the cluster has them. */
  function otherSessions(): ConsoleSessions {
    const settings = { publicUrl: new URL(at), maxSessionMs: 3_600_000 };
    const signIn = new CodeSignIn({
      issuer: renewing.issuer,
      clientId: "heddle-console",
      clientSecret: SECRET,
      redirectUri: `${at}/console/session/callback`,
      scopes: ["openid", "offline_access"],
      parameters: {},
    });
    return new ConsoleSessions(settings, signIn, master.control, TEST_PEPPER);
  }

  /** A browser that has signed in, and what it asks. */
  async function begun() {
    const browser = new Browser();
    expect(await browser.follow(`${at}/console/session/login`)).toBe(`${at}/console/`);
    const state = await (await browser.ask(`${at}/console/session`)).json();
    const { csrf, expires_at } = state as { csrf: string; expires_at: string };
    const asked = async () => {
      const headers = { "x-heddle-csrf": csrf };
      return (await browser.ask(`${at}/api/v1/access/whoami`, { headers })).status;
    };
    return { browser, csrf, expires_at, asked };
  }

  it("outlives its access tokens, and each refresh token is used once", async () => {
    const { expires_at, asked } = await begun();
    expect(Date.parse(expires_at) - Date.now()).toBeGreaterThan(3_600_000);
    const before = renewing.renewals;
    for (let life = 1; life <= 2; life++) {
      await delay(LIFE_S * 1_000 + 200);
      expect(await Promise.all([asked(), asked(), asked()])).toEqual([200, 200, 200]);
      expect(renewing.renewals).toBe(before + life);
    }
  });

  it("is renewed by one master at a time", async () => {
    const { browser, asked } = await begun();
    const other = otherSessions();
    const session = other.of(browser.cookies(new URL(at).host), Date.now());
    if (!session) throw new Error("the other master does not read the session");
    await delay(LIFE_S * 1_000 + 200);
    const before = renewing.renewals;
    const [status, token] = await Promise.all([asked(), other.tokenOf(session)]);
    expect([status, token?.startsWith("eyJ"), renewing.renewals]).toEqual([200, true, before + 1]);
  });

  it("has its tokens as ciphertext that the state alone does not open", async () => {
    const { browser } = await begun();
    const other = otherSessions();
    const session = other.of(browser.cookies(new URL(at).host), Date.now());
    if (!session) throw new Error("the other master does not read the session");
    const token = await other.tokenOf(session);
    expect(token).toMatch(/^eyJ/);
    const kept = [...master.control.state.sessionTokens.values()];
    expect(kept.length).toBeGreaterThan(0);
    const text = kept.map(({ sealed }) => Buffer.from(sealed, "base64").toString("latin1")).join();
    expect(text).not.toContain("eyJ");
    const key = Buffer.alloc(32).toString("base64");
    expect(await other.tokenOf({ ...session, key })).toBeUndefined();
  });

  it("ends when the provider renews it no more, and with its logout", async () => {
    const first = await begun();
    const second = await begun();
    const { size } = master.control.state.sessionTokens;
    const headers = { "x-heddle-csrf": second.csrf };
    await second.browser.ask(`${at}/console/session/logout`, { method: "POST", headers });
    expect(master.control.state.sessionTokens.size).toBe(size - 1);
    expect(await second.asked()).toBe(401);
    await renewing.endGrants();
    await delay(LIFE_S * 1_000 + 200);
    expect(await first.asked()).toBe(401);
    expect(master.control.state.sessionTokens.size).toBe(size - 2);
  });
});

describe("an issuer that has keys alone", () => {
  const issuer = new KeyServer();
  let master: TestMaster;
  let key: Awaited<ReturnType<typeof signingKey>>;
  beforeAll(async () => {
    await issuer.start();
    key = await issuer.addKey("k1");
    const port = await freePort();
    const file = authFile("keys", issuer.issuer, "heddle", port);
    master = await startTestMaster({ authFile: file, httpPort: port });
  });
  afterAll(async () => {
    await master.master.close();
    await issuer.close();
  });

  const events = { "http://schemas.openid.net/event/backchannel-logout": {} };
  const post = async (claims: object, by = key) => {
    const iat = Math.floor(Date.now() / 1_000);
    const own = { iss: issuer.issuer, aud: "heddle-console", iat, jti: "j1", sub: "alice", events };
    const token = await signedToken(by, { ...own, ...claims }, { typ: "logout+jwt" });
    const reply = await fetch(`${master.url}/console/session/backchannel-logout`, {
      method: "POST",
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ logout_token: token }),
    });
    return reply.status;
  };

  it("ends sessions by logout tokens that are its own, for this client and new", async () => {
    expect(await post({})).toBe(200);
    expect(master.control.state.endedSessions.size).toBe(1);
    const old = Math.floor(Date.now() / 1_000) - 400;
    for (const claims of [
      { aud: "heddle" },
      { iss: "https://other.example" },
      { iat: old },
      { events: {} },
      { nonce: "n" },
      { sub: undefined },
      { jti: undefined },
    ]) {
      expect(await post(claims), JSON.stringify(claims)).toBe(400);
    }
    expect(await post({}, await signingKey("k1"))).toBe(400);
    expect(master.control.state.endedSessions.size).toBe(1);
  });

  it("signs no user in: the browser is led back to the console, which says so", async () => {
    const login = await fetch(`${master.url}/console/session/login`, { redirect: "manual" });
    expect(login.status).toBe(302);
    expect(login.headers.get("location")).toBe("/console/#sign-in-failed=unavailable");
  });
});

describe("a console without an identity provider", () => {
  it("says so, and has no sign-in", async () => {
    const plain = await startTestMaster();
    const state = await (await fetch(`${plain.url}/console/session`)).json();
    const login = await fetch(`${plain.url}/console/session/login`);
    await plain.master.close();
    expect(state).toEqual({ sign_in: false, signed_in: false });
    expect(await login.text()).toContain("<html");
  });
});
