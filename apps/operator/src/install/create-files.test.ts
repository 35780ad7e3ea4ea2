import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseApiKey } from "@heddle/auth/api-key";
import { NO_SECRET_KEYS } from "@heddle/base/secret-keys";
import { authorityHash } from "@heddle/pki/certificate-authority";
import { parseJoinToken } from "@heddle/pki/join-token";
import { parseAuthority, readAuthority } from "@heddle/pki/tls-files";
import { afterAll, expect, it } from "vitest";
import { createFiles } from "./create-files.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-secrets-"));
const log = { info: () => {}, warn: () => {}, error: () => {} };
afterAll(() => rmSync(folder, { recursive: true }));

it("create-files: writes what masters read, once, for this user alone", async () => {
  const directory = join(folder, "secrets");
  const read = (name: string) => readFileSync(join(directory, name), "utf8");
  await createFiles(["--directory", directory], log);
  expect(parseApiKey(read("bootstrap-key").trim())).toMatchObject({ ok: true });
  expect(Buffer.from(read("secrets-key"), "base64")).toHaveLength(32);
  expect(await readAuthority(join(directory, "ca.pem"), NO_SECRET_KEYS)).toBeDefined();
  expect(statSync(join(directory, "ca.pem")).mode & 0o777).toBe(0o600);
  const enroll = parseJoinToken(read("enroll-key"));
  const authority = parseAuthority(read("ca.pem"), "ca.pem");
  expect(enroll.authorityHash).toBe(authorityHash(authority.certificate));
  expect(parseApiKey(enroll.secret)).toMatchObject({ ok: true });
  const key = read("bootstrap-key");
  rmSync(join(directory, "enroll-key"));
  await createFiles(["--directory", directory], log);
  expect(parseJoinToken(read("enroll-key")).authorityHash).toBe(enroll.authorityHash);
  await createFiles(["--directory", directory], log);
  expect(read("bootstrap-key")).toBe(key);
  rmSync(join(directory, "ca.pem"));
  await expect(createFiles(["--directory", directory], log)).rejects.toThrow(/lacks ca.pem/);
});
