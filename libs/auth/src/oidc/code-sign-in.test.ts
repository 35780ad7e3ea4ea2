// holds: console-oidc, console-renewal

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { freePort } from "@heddle/base/testing/free-ports";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { CodeSignIn, type WebClient } from "./code-sign-in.ts";
import { Browser } from "./testing/browser.ts";
import { IdentityProvider } from "./testing/identity-provider.ts";
import { signedToken, signingKey } from "./testing/key-server.ts";

const CLIENT = { clientId: "heddle-console", clientSecret: "console-secret-of-the-test" };
const LIFE_S = 3_000;

/** Answers the browser that comes back; the sign-in itself reads the address. */
const landing = createServer((_, response) => response.end());
let console: string;
let provider: IdentityProvider;
beforeAll(async () => {
  await new Promise<void>((resolve) => landing.listen(0, "127.0.0.1", resolve));
  console = `http://127.0.0.1:${(landing.address() as AddressInfo).port}`;
  provider = await IdentityProvider.start(console, 0, LIFE_S);
});
afterAll(async () => {
  await provider.close();
  await new Promise((resolve) => landing.close(resolve));
});

const SCOPES = ["openid", "offline_access"];
const signInOf = (more: Partial<WebClient> = {}) =>
  new CodeSignIn({
    ...CLIENT,
    issuer: provider.issuer,
    redirectUri: `${console}/console/session/callback`,
    scopes: SCOPES,
    parameters: {},
    ...more,
  });

/** A sign-in up to the address with which the browser comes back. */
async function returned(signIn: CodeSignIn) {
  const { url, pending } = await signIn.begin();
  return { pending, at: new URL(await new Browser().follow(url)) };
}

async function signedIn(signIn: CodeSignIn) {
  const { at, pending } = await returned(signIn);
  return signIn.finish(at, pending);
}

describe("sign-in by code", () => {
  it("sends the browser with proofs of its own, and never with its verifier", async () => {
    const signIn = signInOf({ parameters: { audience: "api", state: "fixed" } });
    const [first, second] = [await signIn.begin(), await signIn.begin()];
    const { state, nonce, verifier } = first.pending;
    expect(Object.fromEntries(new URL(first.url).searchParams)).toEqual({
      audience: "api",
      client_id: "heddle-console",
      redirect_uri: `${console}/console/session/callback`,
      response_type: "code",
      scope: "openid offline_access",
      code_challenge: createHash("sha256").update(verifier).digest("base64url"),
      code_challenge_method: "S256",
      prompt: "consent",
      state,
      nonce,
    });
    expect(new Set([...Object.values(first.pending), ...Object.values(second.pending)]).size).toBe(
      6,
    );
  });

  it("asks for consent only where tokens are to be renewed, or as configured", async () => {
    const promptOf = async (more: Partial<WebClient>) =>
      new URL((await signInOf(more).begin()).url).searchParams.get("prompt");
    expect(await promptOf({ scopes: ["openid"] })).toBeNull();
    expect(await promptOf({ parameters: { prompt: "login" } })).toBe("login");
  });

  it("gives the user, the provider's session and tokens with their end", async () => {
    const answer = await signedIn(signInOf());
    expect(answer).toMatchObject({ subject: "alice", accessToken: expect.stringMatching(/^eyJ/) });
    expect(answer.sid?.length).toBeGreaterThan(0);
    expect(answer.refreshToken?.length).toBeGreaterThan(0);
    const leftMs = (answer.expiresAtMs ?? 0) - Date.now();
    expect(leftMs).toBeGreaterThan((LIFE_S - 1_000) * 1_000);
    expect(leftMs).toBeLessThanOrEqual(LIFE_S * 1_000);
    const plain = await signedIn(signInOf({ scopes: ["openid"] }));
    expect(plain.refreshToken).toBeUndefined();
  });

  it("takes a client without a secret", async () => {
    const redirectUri = `${console}/callback`;
    const signIn = signInOf({ clientId: "heddle-cli", clientSecret: undefined, redirectUri });
    const answer = await signedIn(signIn);
    expect(answer).toMatchObject({ subject: "alice" });
    expect(await signIn.renew(answer.refreshToken ?? "", "alice")).toBeDefined();
  });

  it("refuses what another browser began, a second use and the provider's refusal", async () => {
    const signIn = signInOf();
    const { at, pending } = await returned(signIn);
    const other = (await signIn.begin()).pending;
    const foreign = { code: "invalid_api_key", message: /does not belong to this browser/ };
    const refused = (url: URL, by = pending) => expect(signIn.finish(url, by)).rejects;
    await refused(at, other).toMatchObject(foreign);
    await refused(at, { ...pending, nonce: other.nonce }).toMatchObject(foreign);
    const again = { code: "invalid_api_key", message: /refused the sign-in \(invalid_grant\)/ };
    await refused(at).toMatchObject(again);
    const denied = new URL(at);
    denied.searchParams.set("error", "access_denied");
    await refused(denied).toMatchObject({
      code: "invalid_api_key",
      message: /refused the sign-in \(access_denied\)/,
    });
  });

  it("needs the verifier of the browser that began it", async () => {
    const signIn = signInOf();
    const { at, pending } = await returned(signIn);
    const { verifier } = (await signIn.begin()).pending;
    await expect(signIn.finish(at, { ...pending, verifier })).rejects.toMatchObject({
      code: "invalid_api_key",
    });
  });

  it("renews tokens once, for the user that they are of, until the provider ends it", async () => {
    const signIn = signInOf();
    const { accessToken, refreshToken = "" } = await signedIn(signIn);
    const renewed = await signIn.renew(refreshToken, "alice");
    expect(renewed?.accessToken).toMatch(/^eyJ/);
    expect([accessToken, refreshToken]).not.toContain(renewed?.accessToken);
    expect(renewed?.refreshToken).not.toBe(refreshToken);
    expect(renewed?.expiresAtMs).toBeGreaterThan(Date.now());
    expect(await signIn.renew(renewed?.refreshToken ?? "", "bob")).toBeUndefined();
    expect(await signIn.renew(refreshToken, "alice")).toBeUndefined();
  });

  it("has the provider's page that ends its session, which leads back", async () => {
    const url = new URL((await signInOf().logoutUrl(`${console}/console/`)) ?? "");
    expect(url.href).toContain(`${provider.issuer}/session/end?`);
    expect(Object.fromEntries(url.searchParams)).toEqual({
      client_id: "heddle-console",
      post_logout_redirect_uri: `${console}/console/`,
    });
  });

  it("is unavailable without the provider, and works once it is there", async () => {
    const port = await freePort();
    const signIn = signInOf({ issuer: `http://127.0.0.1:${port}` });
    const unavailable = { code: "unavailable", retryAfterMs: 5_000 };
    await expect(signIn.begin()).rejects.toMatchObject(unavailable);
    await expect(signIn.renew("x", "alice")).rejects.toMatchObject(unavailable);
    const late = await IdentityProvider.start(console, port);
    expect(await signedIn(signIn)).toMatchObject({ subject: "alice" });
    const { at, pending } = await returned(signIn);
    await late.close();
    await expect(signIn.finish(at, pending)).rejects.toMatchObject(unavailable);
    // What the provider says of itself was read once.
    expect(await signIn.logoutUrl(console)).toContain("/session/end");
  });

  it("asks a provider that is not on loopback by HTTPS alone", async () => {
    const signIn = signInOf({ issuer: "http://idp.invalid" });
    await expect(signIn.begin()).rejects.toMatchObject({ message: /only requests to HTTPS/ });
  });
});

describe("sign-in at a provider with answers of its own", () => {
  let answer: (form: URLSearchParams) => { readonly status?: number; readonly body: unknown };
  let metadata: object;
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      const isToken = request.url === "/token";
      const form = new URLSearchParams(Buffer.concat(pieces).toString());
      const { status = 200, body } = isToken ? answer(form) : { body: metadata };
      if (body === undefined) return;
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    });
  });
  let issuer: string;
  let key: Awaited<ReturnType<typeof signingKey>>;
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    metadata = { issuer, token_endpoint: `${issuer}/token` };
    key = await signingKey("k1");
  });
  afterAll(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  afterEach(() => vi.restoreAllMocks());

  const PENDING = { state: "s", nonce: "n", verifier: "v".repeat(43) };
  const idToken = (more: object = {}) => {
    const iat = Math.floor(Date.now() / 1_000);
    const own = {
      iss: issuer,
      aud: CLIENT.clientId,
      sub: "alice",
      nonce: "n",
      iat,
      exp: iat + 300,
    };
    return signedToken(key, { ...own, ...more });
  };
  const tokens = async (more: object = {}, claims: object = {}) => ({
    access_token: "opaque",
    token_type: "bearer",
    id_token: await idToken(claims),
    ...more,
  });
  const finished = async (body: unknown, more: Partial<WebClient> = {}) => {
    answer = () => ({ body });
    const at = new URL("http://127.0.0.1/callback?code=c&state=s");
    return signInOf({ issuer, ...more }).finish(at, PENDING);
  };
  const renewed = (body: unknown, status = 200) => {
    answer = () => ({ status, body });
    return signInOf({ issuer }).renew("first", "alice");
  };

  it("tokens end when they say so, else when the answer does", async () => {
    const at = Date.now();
    const own = await signedToken(key, { exp: 1_000 });
    expect((await finished(await tokens({ access_token: own, expires_in: 5 }))).expiresAtMs).toBe(
      1_000_000,
    );
    const endless = await signedToken(key, {});
    for (const access_token of ["opaque", endless]) {
      const { expiresAtMs = 0 } = await finished(await tokens({ access_token, expires_in: 50 }));
      expect(expiresAtMs).toBeGreaterThanOrEqual(at + 50_000);
      expect(expiresAtMs).toBeLessThanOrEqual(Date.now() + 50_000);
      expect((await finished(await tokens({ access_token }))).expiresAtMs).toBeUndefined();
    }
  });

  it("the provider's session is a text of at most 256 characters", async () => {
    const sidOf = async (sid: unknown) => (await finished(await tokens({}, { sid }))).sid;
    expect(await sidOf("s".repeat(256))).toBe("s".repeat(256));
    for (const bad of ["s".repeat(257), 7, undefined]) expect(await sidOf(bad)).toBeUndefined();
  });

  it("an answer without an ID token is refused", async () => {
    const { id_token: _, ...body } = await tokens();
    await expect(finished(body)).rejects.toMatchObject({ code: "invalid_api_key" });
  });

  it("configured parameters are sent with a code and with a refresh token", async () => {
    const forms: URLSearchParams[] = [];
    const body = await tokens({ expires_in: 50 });
    answer = (form) => {
      forms.push(form);
      return { body };
    };
    const signIn = signInOf({ issuer, parameters: { audience: "api" } });
    await signIn.finish(new URL("http://127.0.0.1/callback?code=c&state=s"), PENDING);
    await signIn.renew("first", "alice");
    expect(forms.map((form) => form.get("audience"))).toEqual(["api", "api"]);
  });

  it("renewal: the refresh token stays where the provider gives no other", async () => {
    const { id_token: _, ...body } = await tokens({ expires_in: 50 });
    expect(await renewed(body)).toMatchObject({ accessToken: "opaque", refreshToken: "first" });
    expect(await renewed({ ...body, refresh_token: "next" })).toMatchObject({
      refreshToken: "next",
    });
  });

  it("renewal: tokens of another user or without an end are none", async () => {
    expect(await renewed(await tokens({ expires_in: 50 }))).toBeDefined();
    expect(await renewed(await tokens({ expires_in: 50 }, { sub: "bob" }))).toBeUndefined();
    expect(await renewed(await tokens())).toBeUndefined();
  });

  it("renewal: only what the provider has ended is, any other failure is not", async () => {
    expect(await renewed({ error: "invalid_grant" }, 400)).toBeUndefined();
    for (const [error, status] of [
      ["temporarily_unavailable", 400],
      ["invalid_grant", 500],
    ] as const) {
      await expect(renewed({ error }, status)).rejects.toMatchObject({ code: "unavailable" });
    }
  });

  it("a provider without the pages has no sign-in and no logout", async () => {
    const signIn = signInOf({ issuer });
    await expect(signIn.begin()).rejects.toMatchObject({
      code: "unavailable",
      message: /no page to sign in/,
    });
    expect(await signIn.logoutUrl(console)).toBeUndefined();
  });

  it("a provider that hangs is given up after 10 s", async () => {
    const { timeout } = AbortSignal;
    // The clock runs faster.
    const given = vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) => timeout(ms / 1_000));
    await expect(renewed(undefined)).rejects.toMatchObject({ code: "unavailable" });
    expect(given).toHaveBeenCalledWith(10_000);
  });
});
