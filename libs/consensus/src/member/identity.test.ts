// holds: sec-secrets-at-rest

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NO_SECRET_KEYS, SecretKeys, sealedTextBy } from "@heddle/base/secret-keys";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type Identity, readIdentity, startIdentity, writeIdentity } from "./identity.ts";

const identity: Identity = {
  version: 1,
  name: "master-1",
  nonce: "00112233445566778899aabbccddeeff",
  cluster: "c0ffee",
  id: 3,
  incarnation: 12,
  beginning: {
    kind: "joining",
    members: [{ id: 1, name: "master-2", address: "10.0.0.2:8081", nonce: "ff" }],
  },
};
let directory: string;
const path = () => join(directory, "identity.json");

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-identity-"));
});
afterEach(() => rm(directory, { recursive: true }));

it("identity: is read back as it was written", async () => {
  await writeIdentity(directory, identity, NO_SECRET_KEYS);
  expect(await readIdentity(directory, NO_SECRET_KEYS)).toEqual(identity);
  const { beginning: _, ...later } = identity;
  await writeIdentity(directory, { ...later, beginning: undefined }, NO_SECRET_KEYS);
  expect(await readIdentity(directory, NO_SECRET_KEYS)).toEqual(later);
});

it("identity: any flipped bit of its file is detected", async () => {
  await writeIdentity(directory, identity, NO_SECRET_KEYS);
  const good = await readFile(path());
  // The newline at the end is no part of the content.
  for (let bit = 0; bit < (good.length - 1) * 8; bit++) {
    const bad = Buffer.from(good);
    bad[bit >> 3] = (bad[bit >> 3] as number) ^ (1 << (bit & 7));
    await writeFile(path(), bad);
    const read = startIdentity(directory, "master-1", { newestVersion: 1 });
    await expect(read, `bit ${bit}`).rejects.toMatchObject({
      code: "server_error",
      message: expect.stringMatching(/identity\.json is damaged.*Restore that file, or empty/),
    });
  }
});

it("identity: a file of an earlier version, without a checksum, is read and gets one", async () => {
  await writeFile(path(), `${JSON.stringify(identity)}\n`);
  expect(await readIdentity(directory, NO_SECRET_KEYS)).toEqual(identity);
  await startIdentity(directory, "master-1", { newestVersion: 1 });
  expect(await readFile(path(), "utf8")).toMatch(/"sha256":"[0-9a-f]{64}"/);
});

it("identity: the first secrets key encrypts its private key, and any decrypts it", async () => {
  const member = { ...identity, key: "ab".repeat(32) };
  const [before, after] = [new SecretKeys([Buffer.alloc(32, 1)]), Buffer.alloc(32, 2)];
  const both = new SecretKeys([after, Buffer.alloc(32, 1)]);
  // As a build that knew no encryption of it left the file.
  await writeIdentity(directory, member, NO_SECRET_KEYS);
  expect(await readFile(path(), "utf8")).toContain(member.key);
  for (const keys of [before, both, new SecretKeys([after])]) {
    const started = await startIdentity(directory, member.name, { keys, newestVersion: 1 });
    expect(started.key).toBe(member.key);
    const text = await readFile(path(), "utf8");
    expect(text).not.toContain(member.key);
    expect(sealedTextBy((JSON.parse(text) as Identity).key ?? "")).toBe(keys.ids[0]);
  }
  const without = startIdentity(directory, member.name, { newestVersion: 1 });
  await expect(without).rejects.toThrow(
    /is encrypted with the secrets key .*, and no key was given/,
  );
});
