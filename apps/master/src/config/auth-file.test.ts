// holds: access-tokens

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { readAuthFile } from "./auth-file.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-auth-file-"));
const file = join(folder, "auth.json");
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function read(content: unknown) {
  writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
  return readAuthFile(file);
}

const oauth2 = { issuer: "https://idp.example", audience: "heddle" };

it("auth file: its defaults accept only signatures by a private key", () => {
  const { oauth2: read2 } = read({ method: "oauth2", oauth2 });
  expect(read2).toMatchObject({
    algorithms: ["RS256", "PS256", "ES256", "EdDSA"],
    token_types: ["at+jwt", "jwt"],
    clock_skew_seconds: 30,
    claims: { user: "sub" },
    roles_prefix: "heddle:",
  });
  expect(read({})).toMatchObject({ method: "api_keys" });
});

it.each<[string, unknown, RegExp]>([
  ["no JSON", "{", /cannot be read as JSON/],
  ["an unknown member", { methd: "oauth2" }, /methd/],
  ["the method without a provider", { method: "oauth2" }, /oauth2: it is given/],
  ["a provider without the method", { oauth2 }, /oauth2: it is given/],
  ["plain HTTP", { method: "oauth2", oauth2: { ...oauth2, issuer: "http://a.example" } }, /https/],
  [
    "a secret's algorithm",
    { method: "oauth2", oauth2: { ...oauth2, algorithms: ["HS256"] } },
    /HS256|algorithms/,
  ],
  [
    "no algorithm at all",
    { method: "oauth2", oauth2: { ...oauth2, algorithms: ["none"] } },
    /algorithms/,
  ],
  ["a shipped role", { rbac: { roles: { admin: { permissions: ["*"] } } } }, /every cluster/],
  [
    "an unknown permission",
    { rbac: { roles: { x: { permissions: ["jobs:fly"] } } } },
    /jobs:cancel/,
  ],
  [
    "a binding without a role",
    { rbac: { bindings: [{ kind: "user", subject: "a" }] } },
    /bindings.0.role/,
  ],
])("auth file: %s is refused with its place", (_, content, message) => {
  expect(() => read(content)).toThrow(message);
});

it("auth file: all faults are listed at once", () => {
  const content = { method: "oauth2", oauth2: { issuer: "ftp://a", audience: "" } };
  expect(() => read(content)).toThrow(/issuer.*audience/);
});
