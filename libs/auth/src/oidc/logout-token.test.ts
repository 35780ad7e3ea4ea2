// holds: console-oidc

import type { JWTPayload } from "jose";
import { afterAll, beforeAll, expect, it } from "vitest";
import { IssuerKeys } from "./issuer-keys.ts";
import { readLogoutToken } from "./logout-token.ts";
import { KeyServer, signedToken, signingKey, tokenOfLength } from "./testing/key-server.ts";

const EVENT = "http://schemas.openid.net/event/backchannel-logout";
const TYPE = { typ: "logout+jwt" };

const server = new KeyServer();
let key: Awaited<ReturnType<typeof signingKey>>;
let keys: IssuerKeys;
beforeAll(async () => {
  await server.start();
  key = await server.addKey("k1");
  keys = new IssuerKeys({ issuer: server.issuer, now: () => performance.now() });
});
afterAll(() => server.close());

const nowS = () => Math.floor(Date.now() / 1_000);
const claims = (more: object = {}): JWTPayload =>
  JSON.parse(
    JSON.stringify({
      iss: server.issuer,
      aud: "console",
      iat: nowS(),
      jti: "j1",
      sub: "alice",
      sid: "s1",
      events: { [EVENT]: {} },
      ...more,
    }),
  );
const read = (token: string) =>
  readLogoutToken(token, keys.find, {
    issuer: server.issuer,
    clientId: "console",
    algorithms: ["RS256"],
    clockSkewS: 60,
  });
const readOf = async (more: object, header: object = TYPE) =>
  read(await signedToken(key, claims(more), { ...header }));

it("logout tokens: name a subject, a session or both, and when they ended", async () => {
  const iat = nowS() - 10;
  const ended = { sid: "s1", subject: "alice", atMs: iat * 1_000 };
  expect(await readOf({ iat })).toEqual(ended);
  expect(await readOf({ iat, sub: undefined })).toEqual({ ...ended, subject: undefined });
  expect(await readOf({ iat, sid: undefined })).toEqual({ ...ended, sid: undefined });
});

it("logout tokens: a name is a text of 1 to 256 characters", async () => {
  const longest = "n".repeat(256);
  expect(await readOf({ sub: longest, sid: "" })).toMatchObject({
    subject: longest,
    sid: undefined,
  });
  for (const bad of ["", `${longest}n`, 7, ["alice"], null]) {
    expect(await readOf({ sub: undefined, sid: bad }), JSON.stringify(bad)).toBeUndefined();
  }
});

it.each(["logout+jwt", "LOGOUT+JWT", "application/logout+jwt", "JWT", undefined])(
  "logout tokens: the type %s is accepted",
  async (typ) => expect(await readOf({}, { typ })).toMatchObject({ subject: "alice" }),
);

it.each(["at+jwt", "logout+jwt+application/", "x/application/jwt", ""])(
  "logout tokens: the type %j is refused",
  async (typ) => expect(await readOf({}, { typ })).toBeUndefined(),
);

it.each<[string, object]>([
  ["for another client", { aud: "other" }],
  ["of another issuer", { iss: "https://other.example" }],
  ["that is older than 5 minutes and the clock skew", { iat: nowS() - 400 }],
  ["from the future", { iat: nowS() + 600 }],
  ["without a time", { iat: undefined }],
  ["without an id", { jti: undefined }],
  ["without an issuer", { iss: undefined }],
  ["without a client", { aud: undefined }],
  ["that names no user", { sub: undefined, sid: undefined }],
  ["with a nonce, which is an ID token,", { nonce: "n" }],
  ["without events", { events: undefined }],
  ["whose events are a text", { events: EVENT }],
  ["whose events are null", { events: null }],
  ["of another event", { events: { other: {} } }],
])("logout tokens: one %s is refused", async (_, more) => {
  expect(await readOf(more)).toBeUndefined();
});

it("logout tokens: one within the clock skew is accepted", async () => {
  expect(await readOf({ iat: nowS() + 30 })).toMatchObject({ subject: "alice" });
  expect(await readOf({ iat: nowS() - 320 })).toMatchObject({ subject: "alice" });
});

it("logout tokens: forged ones, and those of another algorithm, are refused", async () => {
  expect(await read(await signedToken(await signingKey("k1"), claims(), TYPE))).toBeUndefined();
  const ps = await server.addKey("ps", "PS256");
  expect(await read(await signedToken(ps, claims(), TYPE))).toBeUndefined();
});

it("logout tokens: one has at most 8,192 characters", async () => {
  expect(await read(await tokenOfLength(8_192, key, claims(), TYPE))).toMatchObject({ sid: "s1" });
  expect(await read(await tokenOfLength(8_193, key, claims(), TYPE))).toBeUndefined();
});
