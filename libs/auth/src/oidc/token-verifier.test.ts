// holds: access-tokens

import { createHmac } from "node:crypto";
import { CompactSign, exportSPKI, type JWTPayload, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isActiveToken } from "./introspection.ts";
import { IssuerKeys } from "./issuer-keys.ts";
import { KeyServer, signedToken, signingKey, tokenOfLength } from "./testing/key-server.ts";
import { type TokenRules, TokenVerifier } from "./token-verifier.ts";

const NOW_MS = Date.parse("2026-11-28T12:00:00Z");
const NOW_S = NOW_MS / 1_000;

const server = new KeyServer();
let key: Awaited<ReturnType<typeof signingKey>>;
beforeAll(async () => {
  await server.start();
  key = await server.addKey("k1");
});
afterAll(() => server.close());

const claims = (more: JWTPayload = {}): JWTPayload => ({
  iss: server.issuer,
  aud: "heddle",
  sub: "alice",
  iat: NOW_S,
  exp: NOW_S + 300,
  ...more,
});

const rules = (more: Partial<TokenRules> = {}): TokenRules => ({
  issuer: server.issuer,
  audience: ["heddle"],
  algorithms: ["RS256", "ES256"],
  tokenTypes: ["at+jwt", "jwt"],
  clockSkewS: 30,
  claims: { user: "sub", groups: "groups", roles: "realm.roles", rolesPrefix: "heddle:" },
  ...more,
});

function verifier(more: Partial<TokenRules> = {}, now = () => NOW_MS): TokenVerifier {
  const keys = new IssuerKeys({ issuer: server.issuer, now: () => performance.now() });
  return new TokenVerifier(rules(more), keys.find, now);
}

const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");

describe("access tokens", () => {
  it("give the user, its groups, and the roles with the prefix", async () => {
    const more = {
      groups: ["platform", "vision team", 7, " bad"],
      realm: { roles: ["heddle:viewer", "admin", "another:editor", "heddle:Bad Name"] },
    };
    const user = await verifier().verify(await signedToken(key, claims(more)));
    expect(user).toMatchObject({
      subject: "alice",
      groups: ["platform", "vision team"],
      roles: ["viewer"],
    });
    expect(user.id).toMatch(/^usr_[A-Za-z0-9_-]{22}$/);
    for (const realm of [undefined, null, { roles: null }]) {
      const others = await signedToken(key, claims({ sub: "bob", realm }));
      const other = await verifier().verify(others);
      expect(other).toMatchObject({ groups: [], roles: [] });
      expect(other.id).not.toBe(user.id);
    }
  });

  it("have at most 500 groups that are read, and 64 roles that count", async () => {
    const roles = Array.from({ length: 65 }, (_, i) => `heddle:role-${i}`);
    const more = { groups: Array(500).fill("g"), realm: { roles } };
    const user = await verifier().verify(await signedToken(key, claims(more)));
    expect(user.groups).toHaveLength(500);
    expect(user.roles).toEqual(roles.slice(0, 64).map((role) => role.slice(7)));
  });

  it("name groups in a list or by words, by a claim's name or its path", async () => {
    const groupsOf = async (groups: string, more: JWTPayload) => {
      const names = { user: "sub", groups, roles: undefined, rolesPrefix: "" };
      const token = await signedToken(key, claims(more));
      return (await verifier({ claims: names }).verify(token)).groups;
    };
    expect(await groupsOf("groups", { groups: " a b  c" })).toEqual(["a", "b", "c"]);
    expect(await groupsOf("https://a.b/c", { "https://a.b/c": ["d"] })).toEqual(["d"]);
    expect(await groupsOf("a.b.c", { a: { b: { c: "d" } } })).toEqual(["d"]);
    for (const path of ["a.0", "a.length", "a.toString", "b.c", "toString"]) {
      expect(await groupsOf(path, { a: "text" }), path).toEqual([]);
    }
  });

  it("name the user by a text", async () => {
    const names = { user: "uid", groups: undefined, roles: undefined, rolesPrefix: "" };
    const token = (uid: unknown) => signedToken(key, claims({ uid }));
    expect(await verifier({ claims: names }).verify(await token("7"))).toMatchObject({
      subject: "7",
    });
    for (const uid of [7, ["7"], undefined]) {
      await expect(verifier({ claims: names }).verify(await token(uid))).rejects.toThrow(
        /names no user/,
      );
    }
  });

  it("name the user by an e-mail address only if it is verified", async () => {
    const names = { user: "email", groups: undefined, roles: undefined, rolesPrefix: "" };
    const email = "alice@example.com";
    const good = await signedToken(key, claims({ email, email_verified: true }));
    expect(await verifier({ claims: names }).verify(good)).toMatchObject({ subject: email });
    for (const email_verified of [false, undefined, "true"]) {
      const token = await signedToken(key, claims({ email, email_verified }));
      await expect(verifier({ claims: names }).verify(token)).rejects.toThrow(/not verified/);
    }
  });

  it.each<[string, JWTPayload, RegExp]>([
    ["that have expired", { exp: NOW_S - 31 }, /has expired/],
    ["without an expiry", { exp: undefined as never }, /no claim `exp`/],
    ["that are not valid yet", { nbf: NOW_S + 31 }, /not valid yet/],
    ["for another audience", { aud: "other" }, /another audience/],
    ["for several others", { aud: ["a", "b"] }, /another audience/],
    ["without an audience", { aud: undefined as never }, /no claim `aud`/],
    ["of another issuer", { iss: "https://other.example" }, /another issuer/],
    ["of an issuer with a slash more", { iss: `${"http://127.0.0.1"}/` }, /another issuer/],
    ["without a subject", { sub: undefined as never }, /no claim `sub`/],
    ["whose subject has a line break", { sub: "a\nb" }, /names no user/],
    ["whose expiry is a text", { exp: String(NOW_S + 300) as never }, /claim `exp`|no valid/],
    ["with too many groups", { groups: Array(501).fill("g") }, /501 groups/],
    ["whose time is a text", { iat: "today" as never }, /claim `iat` is wrong/],
    ["that are ID tokens of the same audience", { at_hash: "x" }, /`at_hash` shows/],
    ["that are logout tokens", { events: {} }, /`events` shows/],
  ])("%s are refused", async (_, more, reason) => {
    const token = await signedToken(key, JSON.parse(JSON.stringify(claims(more))));
    await expect(verifier().verify(token)).rejects.toMatchObject({
      code: "invalid_api_key",
      message: expect.stringMatching(reason),
    });
  });

  it("within the clock skew are accepted", async () => {
    for (const more of [{ exp: NOW_S - 29 }, { nbf: NOW_S + 29 }]) {
      const token = await signedToken(key, claims(more));
      expect(await verifier().verify(token)).toMatchObject({ subject: "alice" });
    }
  });

  it.each(["id+jwt", "logout+jwt", "x/application/jwt", undefined])(
    "of the type %s are refused",
    async (typ) => {
      const token = await signedToken(key, claims(), { typ });
      const named = `its type is ${JSON.stringify(typ ?? "none")}, not `;
      await expect(verifier().verify(token)).rejects.toThrow(named);
    },
  );

  it("without a type are accepted where that is configured", async () => {
    const token = await signedToken(key, claims(), { typ: undefined });
    const accepted = verifier({ tokenTypes: ["none"] });
    expect(await accepted.verify(token)).toMatchObject({ subject: "alice" });
    const long = await signedToken(key, claims(), { typ: "application/at+jwt" });
    expect(await verifier().verify(long)).toMatchObject({ subject: "alice" });
  });

  it("with a critical header that is not understood are refused", async () => {
    const header = { alg: "RS256", kid: "k1", typ: "at+jwt", crit: ["x"], x: 1 };
    const token = new SignJWT(claims()).setProtectedHeader(header);
    const signed = await token.sign(key.privateKey, { crit: { x: true } });
    await expect(verifier().verify(signed)).rejects.toThrow(/refused/);
  });

  it("that contain a signed token in place of claims are refused", async () => {
    const inner = new TextEncoder().encode(await signedToken(key, claims()));
    const header = { alg: "RS256", kid: "k1", typ: "at+jwt", cty: "JWT" };
    const nested = await new CompactSign(inner).setProtectedHeader(header).sign(key.privateKey);
    await expect(verifier().verify(nested)).rejects.toThrow(/no valid signed JWT/);
  });

  it("for several audiences are accepted where one is this API", async () => {
    const token = await signedToken(key, claims({ aud: ["other", "heddle"] }));
    expect(await verifier().verify(token)).toMatchObject({ subject: "alice" });
  });
});

describe("forged tokens", () => {
  const refused = (token: string, reason: RegExp) =>
    expect(verifier().verify(token)).rejects.toMatchObject({
      code: "invalid_api_key",
      message: expect.stringMatching(reason),
    });

  it.each(["none", "None", "NONE", "nOnE", ""])("of the algorithm %j are refused", async (alg) => {
    const head = encoded({ alg, kid: "k1", typ: "at+jwt" });
    for (const signature of ["", "AAAA"]) {
      await refused(`${head}.${encoded(claims())}.${signature}`, /algorithm|no valid signed JWT/);
    }
  });

  it("signed by HMAC with the public key are refused", async () => {
    const pem = await exportSPKI(key.publicKey);
    for (const secret of [pem, JSON.stringify(key.jwk), String(key.jwk.n)]) {
      const text = `${encoded({ alg: "HS256", kid: "k1", typ: "at+jwt" })}.${encoded(claims())}`;
      const signature = createHmac("sha256", secret).update(text).digest("base64url");
      await refused(`${text}.${signature}`, /algorithm/);
    }
  });

  it("whose key id is a path, or a query, are refused", async () => {
    for (const kid of ["../../../../dev/null", "k1' OR '1'='1", `${server.issuer}/keys`, "k1\0"]) {
      const text = `${encoded({ alg: "HS256", kid, typ: "at+jwt" })}.${encoded(claims())}`;
      const signature = createHmac("sha256", "").update(text).digest("base64url");
      await refused(`${text}.${signature}`, /algorithm/);
      await refused(await signedToken(await signingKey(kid), claims()), /no key of the issuer/);
    }
  });

  it("that bring their own key are refused", async () => {
    const own = await signingKey("k1");
    for (const header of [
      { jwk: own.jwk },
      { jku: `${server.issuer}/mine` },
      { x5u: "https://a" },
    ]) {
      await refused(await signedToken(own, claims(), header), /signature is wrong/);
    }
    await refused(
      await signedToken(await signingKey("stranger"), claims()),
      /no key of the issuer/,
    );
  });

  it("of an algorithm that is not accepted are refused, though the key is published", async () => {
    const ps = await server.addKey("ps", "PS256");
    await refused(await signedToken(ps, claims()), /algorithm/);
  });

  it("that do not name their key are refused where several fit", async () => {
    const other = await server.addKey("k2");
    await refused(await signedToken(key, claims(), { kid: undefined }), /not name its key \(kid\)/);
    server.keys.splice(server.keys.indexOf(other), 1);
  });

  it("with a changed part are refused", async () => {
    const [head, payload, signature = ""] = (await signedToken(key, claims())).split(".");
    const root = encoded(claims({ sub: "root" }));
    await refused(`${head}.${root}.${signature}`, /signature is wrong/);
    const flipped = signature.startsWith("A") ? `B${signature.slice(1)}` : `A${signature.slice(1)}`;
    await refused(`${head}.${payload}.${flipped}`, /signature is wrong/);
    await refused(`${head}.${payload}.`, /refused/);
    await refused(`${head}.${Buffer.from("[]").toString("base64url")}.${signature}`, /refused/);
  });

  it("with odd headers, or signatures of nothing, are refused", async () => {
    const es = await server.addKey("es", "ES256");
    const head = { alg: "ES256", kid: "es", typ: "at+jwt" };
    const odd = [
      head,
      { ...head, alg: "es256" },
      { ...head, alg: ["ES256"] },
      { ...head, kid: ["es"] },
      { ...head, kid: "__proto__", typ: 7 },
      { ...head, b64: false, crit: ["b64"] },
      { ...head, zip: "DEF" },
    ];
    const zeros = [Buffer.alloc(64), Buffer.from("3006020100020100", "hex")];
    for (const each of odd) {
      const text = `${encoded(each)}.${encoded(claims())}`;
      for (const bytes of zeros) await refused(`${text}.${bytes.toString("base64url")}`, /refused/);
      await refused(`${text}.`, /refused/);
    }
    server.keys.splice(server.keys.indexOf(es), 1);
  });

  it("that are huge are refused unread", async () => {
    const before = server.reads;
    await refused(`eyJ${"a".repeat(9_000)}.a.a`, /at most 8192/);
    expect(server.reads).toBe(before);
    await refused(await tokenOfLength(8_193, key, claims()), /has 8193 characters/);
    const longest = await tokenOfLength(8_192, key, claims());
    expect(await verifier().verify(longest)).toMatchObject({ subject: "alice" });
  });

  it("have another form than keys", () => {
    for (const text of ["hdl_live_aaaaaaaa_x", "eyJa.b", "eyJa.b.c.d", "a.b.c", ""]) {
      expect(verifier().recognizes(text), text).toBe(false);
    }
    expect(verifier().recognizes("eyJhbGciOiJub25lIn0.e30.")).toBe(true);
  });
});

describe("a verified token", () => {
  it("is remembered for 40 seconds, and never beyond its expiry", async () => {
    let nowMs = NOW_MS;
    const token = await signedToken(key, claims({ exp: NOW_S + 30 }));
    let finds = 0;
    const keys = new IssuerKeys({ issuer: server.issuer, now: () => performance.now() });
    const counted = new TokenVerifier(
      rules({ clockSkewS: 0 }),
      (header, jws) => {
        finds++;
        return keys.find(header, jws);
      },
      () => nowMs,
    );
    await counted.verify(token);
    nowMs += 20_000;
    await counted.verify(token);
    expect(finds).toBe(1);
    nowMs += 10_000;
    await expect(counted.verify(token)).rejects.toThrow(/expired/);
    const long = await signedToken(key, claims({ exp: NOW_S + 5_000 }));
    await counted.verify(long);
    finds = 0;
    nowMs += 39_999;
    await counted.verify(long);
    expect(finds).toBe(0);
    nowMs += 1;
    await counted.verify(long);
    expect(finds).toBe(1);
  });

  it("is remembered until its expiry and the clock skew", async () => {
    let nowMs = NOW_MS;
    let finds = 0;
    const find = () => {
      finds++;
      return SECRET;
    };
    const counted = new TokenVerifier(rules({ algorithms: ["HS256"] }), find, () => nowMs);
    const token = await secretToken("alice", { exp: NOW_S + 5 });
    await counted.verify(token);
    nowMs += 34_999;
    await counted.verify(token);
    expect(finds).toBe(1);
    nowMs += 1;
    await expect(counted.verify(token)).rejects.toThrow(/expired/);
  });
});

const SECRET = Buffer.alloc(32, 7);
/** Signed by a secret, which takes no time. */
const secretToken = (sub: string, more: JWTPayload = {}) =>
  new SignJWT(claims({ sub, ...more }))
    .setProtectedHeader({ alg: "HS256", typ: "at+jwt" })
    .sign(SECRET);

describe("introspection", () => {
  it("tokens: a revoked one is refused within 40 s, and without an answer none is", async () => {
    let nowMs = NOW_MS;
    const keys = new IssuerKeys({ issuer: server.issuer, now: () => performance.now() });
    const client = { clientId: "heddle api", clientSecret: "p+w/d" };
    const endpoint = `${server.issuer}/introspect`;
    const isActive = (text: string) => isActiveToken(text, { endpoint, ...client });
    const tokens = new TokenVerifier(rules(), keys.find, () => nowMs, isActive);
    const token = await signedToken(key, claims());
    expect(await tokens.verify(token)).toMatchObject({ subject: "alice" });
    server.revoked.add(token);
    nowMs += 40_000;
    await expect(tokens.verify(token)).rejects.toThrow(/identity provider has revoked it/);
    const other = await signedToken(key, claims({ sub: "bob" }));
    server.status = 500;
    const unavailable = { code: "unavailable", retryAfterMs: 5_000 };
    await expect(tokens.verify(other)).rejects.toMatchObject(unavailable);
    server.status = 200;
    expect(await tokens.verify(other)).toMatchObject({ subject: "bob" });
    for (const text of ["{}", "null", '{"active":"true"}']) {
      server.text = text;
      await expect(isActive(other)).rejects.toMatchObject({ code: "unavailable" });
    }
    server.text = undefined;
    const wrong = (text: string) => isActiveToken(text, { endpoint, ...client, clientSecret: "x" });
    expect(await wrong(other)).toBe(false);
  });
});
