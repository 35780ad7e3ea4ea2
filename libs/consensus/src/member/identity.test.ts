import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

it("an identity is read back as it was written", async () => {
  await writeIdentity(directory, identity);
  expect(await readIdentity(directory)).toEqual(identity);
  const { beginning: _, ...later } = identity;
  await writeIdentity(directory, { ...later, beginning: undefined });
  expect(await readIdentity(directory)).toEqual(later);
});

it("identity: any flipped bit of its file is detected", async () => {
  await writeIdentity(directory, identity);
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

it("a file of an earlier version, without a checksum, is read and gets one", async () => {
  await writeFile(path(), `${JSON.stringify(identity)}\n`);
  expect(await readIdentity(directory)).toEqual(identity);
  await startIdentity(directory, "master-1", { newestVersion: 1 });
  expect(await readFile(path(), "utf8")).toMatch(/"sha256":"[0-9a-f]{64}"/);
});
