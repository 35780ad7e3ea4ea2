// holds: sec-secrets-at-rest

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { readSecretKeys, SecretKeys, sealedBy } from "./secret-keys.ts";
import { writeKeyProgram, writeTestProgram } from "./testing/key-program.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-keys-"));
afterAll(() => rmSync(folder, { recursive: true }));

const key = (fill: number): Buffer => Buffer.alloc(32, fill);
const ids = (...keys: number[]): string[] => new SecretKeys(keys.map(key)).ids;
const [ONE, TWO] = ids(1, 2) as [string, string];
const text = Buffer.from("the pepper of a cluster");

test("secret keys: a sealed text opens with any set that holds the key", () => {
  const sealed = new SecretKeys([key(1)]).seal(text, "log entry", ONE);
  expect(sealed.includes("pepper")).toBe(false);
  expect(sealedBy(sealed)).toBe(ONE);
  expect(new SecretKeys([key(2), key(1)]).open(sealed, "log entry")).toEqual(text);
});

test("secret keys: a text is never sealed twice alike, by one process or by two", () => {
  const sets = [new SecretKeys([key(1)]), new SecretKeys([key(1)])];
  const sealed = sets.flatMap((set) => [0, 1, 2].map(() => set.seal(text, "log entry", ONE)));
  expect(
    new Set(sealed.map((bytes) => bytes.toString("hex").slice(8 + 16, 8 + 16 + 40))).size,
  ).toBe(6);
});

test("secret keys: a text that was sealed for one purpose opens for no other", () => {
  const keys = new SecretKeys([key(1)]);
  const sealed = keys.seal(text, "snapshot 1", ONE);
  const moved = /does not decrypt as snapshot 2: it was changed, or moved/;
  expect(() => keys.open(sealed, "snapshot 2")).toThrow(moved);
  expect(() => keys.openText(keys.sealText("x", "authority"), "node certificate")).toThrow(/moved/);
});

test("secret keys: any flipped bit, and any truncation, is detected", () => {
  const keys = new SecretKeys([key(1)]);
  const sealed = keys.seal(Buffer.from("ab"), "log entry", ONE);
  for (let bit = 4 * 8; bit < sealed.length * 8; bit++) {
    const bad = Buffer.from(sealed);
    bad[bit >> 3] = (bad[bit >> 3] as number) ^ (1 << (bit & 7));
    expect(() => keys.open(bad, "log entry"), `bit ${bit}`).toThrow();
  }
  expect(() => keys.open(sealed.subarray(0, -1), "log entry")).toThrow();
});

test("secret keys: the error names the missing key, and how to provide it", () => {
  const sealed = new SecretKeys([key(1)]).seal(text, "log entry", ONE);
  const other = { code: "precondition_failed" };
  const open = (set: SecretKeys) => () => set.open(sealed, "log entry");
  expect(open(new SecretKeys())).toThrow(expect.objectContaining(other));
  expect(open(new SecretKeys())).toThrow(
    new RegExp(`key ${ONE}, and no key was given.*--secrets-key`),
  );
  expect(open(new SecretKeys([key(2)]))).toThrow(new RegExp(`those given are ${TWO}`));
});

test("secret keys: clear text stays as it is", () => {
  const keys = new SecretKeys([key(1)]);
  expect(keys.open(text, "log entry")).toBe(text);
  expect(keys.openText("-----BEGIN", "authority")).toBe("-----BEGIN");
  expect(new SecretKeys().sealText("in clear", "authority")).toBe("in clear");
});

test("secret keys: a file's text is current under the first key alone", () => {
  const [old, both] = [new SecretKeys([key(1)]), new SecretKeys([key(2), key(1)])];
  const sealed = old.sealText("secret", "authority");
  expect(both.openText(sealed, "authority")).toBe("secret");
  expect([old.isCurrent(sealed), both.isCurrent(sealed), both.isCurrent("secret")]).toEqual([
    true,
    false,
    false,
  ]);
  expect(both.isCurrent(both.sealText("secret", "authority"))).toBe(true);
  expect(new SecretKeys().isCurrent("secret")).toBe(true);
});

test("secret keys: a file holds them in base64 or hexadecimal, with comments", () => {
  const file = join(folder, "keys");
  writeFileSync(file, `# new\n${key(2).toString("base64")}\n\n${key(1).toString("hex")} # old\n`);
  expect(readSecretKeys(file, {}).ids).toEqual([TWO, ONE]);
  const variable = `${key(2).toString("base64url")},${key(1).toString("hex")}`;
  expect(readSecretKeys(undefined, { HEDDLE_SECRETS_KEY: variable }).ids).toEqual([TWO, ONE]);
  expect(readSecretKeys(undefined, { HEDDLE_SECRETS_KEY: "" }).ids).toEqual([]);
});

const keyProgram = (name: string, own: string) => writeKeyProgram(join(folder, name), own);

const wrap = (program: string, clear: string) =>
  execFileSync(program, ["wrap"], { input: clear, encoding: "utf8" }).trim();

// holds: secrets-key-program
test("secret keys: a program unwraps those that are wrapped, beside clear ones", () => {
  const program = keyProgram("kms", "key of the service");
  const wrapped = wrap(program, key(2).toString("base64"));
  const file = join(folder, "wrapped");
  writeFileSync(file, `wrapped:${wrapped} # by the service\n${key(1).toString("hex")}\n`);
  const env = { HEDDLE_SECRETS_KEY_COMMAND: program };
  expect(readSecretKeys(file, env).ids).toEqual([TWO, ONE]);
  const variable = { ...env, HEDDLE_SECRETS_KEY: `wrapped:${wrapped}` };
  expect(readSecretKeys(undefined, variable).ids).toEqual([TWO]);
  expect(() => readSecretKeys(file, {})).toThrow(/holds a wrapped key.*_COMMAND to one/);
});

// holds: secrets-key-program
test("secret keys: a program that unwraps none is named with what it said", () => {
  const wrapped = wrap(keyProgram("one", "its key"), key(1).toString("base64"));
  const given = { HEDDLE_SECRETS_KEY: `wrapped:${wrapped}` };
  const read = (program: string) => () =>
    readSecretKeys(undefined, { ...given, HEDDLE_SECRETS_KEY_COMMAND: program });
  expect(read(keyProgram("other", "another key"))).toThrow(
    /other unwraps no key.*exit code 1.*authenticate/s,
  );
  expect(read(join(folder, "missing"))).toThrow(/missing unwraps no key: .*ENOENT/);
  const other = writeTestProgram(join(folder, "words"), 'console.log("words");');
  expect(read(other)).toThrow(/HEDDLE_SECRETS_KEY must hold.*number 1 is none/);
  expect(read(other)).not.toThrow(new RegExp(wrapped.slice(0, 20)));
});

test("secret keys: a malformed key is refused, and not shown", () => {
  const file = join(folder, "bad");
  for (const [content, fault] of [
    ["", /it has 0/],
    ["hunter2hunter2", /number 1 is none.*head -c 32/],
    [`${key(1).toString("hex")}\n${"x".repeat(43)}!`, /number 2 is none/],
    [Array.from({ length: 17 }, (_, at) => key(at).toString("hex")).join("\n"), /it has 17/],
  ] as const) {
    writeFileSync(file, content);
    expect(() => readSecretKeys(file, {}), content).toThrow(fault);
    expect(() => readSecretKeys(file, {}), content).not.toThrow(/hunter2/);
  }
  expect(() => readSecretKeys(join(folder, "none"), {})).toThrow(/none does not exist/);
  const both = { HEDDLE_SECRETS_KEY: key(1).toString("hex") };
  expect(() => readSecretKeys(file, both)).toThrow(/give one of them/);
});
