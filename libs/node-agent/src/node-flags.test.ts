// holds: cli-file-flags, sec-tls-default

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { nodeIdentity } from "./identity.ts";
import { readEnrollKey, readNodeFlags } from "./node-flags.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-flags-"));
const tokenFile = join(folder, "token");
writeFileSync(tokenFile, "0123456789abcdef\n");
afterAll(() => rmSync(folder, { recursive: true }));

const valid = [
  "--insecure-nodes",
  "--data",
  folder,
  "--masters",
  "a:1,b:2",
  "--cluster-token-file",
  tokenFile,
];

test("node flags: masters, the token without its line end, and the defaults", () => {
  const { flags, metrics, extra } = readNodeFlags([...valid, "--threads", "3"], ["threads"]);
  expect(metrics).toEqual({ host: "127.0.0.1", port: 0 });
  expect(flags).toEqual({
    dataDirectory: folder,
    secretPaths: [folder, tokenFile],
    name: undefined,
    grpcHost: "127.0.0.1",
    grpcPort: 0,
    advertise: undefined,
    masters: ["a:1", "b:2"],
    clusterToken: "0123456789abcdef",
    tls: false,
    isExposed: true,
    joinToken: undefined,
  });
  expect(extra).toEqual({ threads: "3" });
});

test("node flags: each invalid flag is refused with its valid values", () => {
  const refusal =
    (...args: string[]) =>
    () =>
      readNodeFlags(args);
  expect(refusal(...valid, "--grpc-port", "70000")).toThrow(/--grpc-port takes a whole number/);
  expect(refusal(...valid, "--advertise", "nowhere")).toThrow(/--advertise takes HOST:PORT/);
  expect(refusal(...valid, "--master", "a:1")).toThrow(/--masters/);
  expect(refusal("--data", folder)).toThrow(/give --masters/);
  expect(refusal(...valid, "--masters", "c")).toThrow(/--masters takes HOST:PORT.*not c/);
  expect(refusal(...valid, "--masters", "c:65536")).toThrow(/--masters takes .* 1 to 65535/);
  expect(refusal(...valid, "--advertise", "c:0")).toThrow(/--advertise takes .* 1 to 65535/);
  const missing = refusal(...valid, "--cluster-token-file", "/nope");
  expect(missing).toThrow(/--cluster-token-file \/nope does not exist. Give a copy of/);
  const directory = refusal(...valid, "--cluster-token-file", folder);
  expect(directory).toThrow(`--cluster-token-file ${folder} is a directory`);
  writeFileSync(join(folder, "short"), "abc");
  const short = refusal(...valid, "--cluster-token-file", join(folder, "short"));
  expect(short).toThrow(/has 3 characters/);
});

test("node flags: off loopback TLS is required unless plain text is allowed", () => {
  const [, ...checked] = valid;
  const local = ["--data", folder, "--cluster-token-file", tokenFile, "--masters", "127.0.0.1:1"];
  expect(readNodeFlags(checked).flags).toMatchObject({ tls: true, clusterToken: "" });
  for (const way of [
    ["--grpc-host", "10.0.0.9"],
    ["--grpc-host", "::"],
    ["--advertise", "10.0.0.9:1"],
    ["--masters", "127.0.0.1:1,b.example:1"],
  ]) {
    expect(readNodeFlags([...local, ...way]).flags, way.join()).toMatchObject({ tls: true });
  }
  const plain = readNodeFlags([...local, "--grpc-host", "10.0.0.9", "--insecure-nodes"]).flags;
  expect(plain).toMatchObject({ tls: false, clusterToken: "0123456789abcdef" });
  expect(plain.isExposed).toBe(true);
  expect(readNodeFlags(local).flags).toMatchObject({ tls: false, isExposed: false });
  const secured = readNodeFlags([...checked, "--tls", "--join-token-file", tokenFile]).flags;
  expect(secured).toMatchObject({ tls: true, clusterToken: "", joinToken: "0123456789abcdef" });
});

test("node flags: a join token's file may be deleted, and is no directory", () => {
  const args = [...valid, "--tls", "--join-token-file"];
  expect(readNodeFlags([...args, join(folder, "deleted")]).flags.joinToken).toBeUndefined();
  expect(() => readNodeFlags([...args, folder])).toThrow(/--join-token-file .* is a directory/);
});

test("node flags: an enrolment key has its form, and excludes a join token", () => {
  const key = join(folder, "enroll-key");
  const args = [...valid, "--tls", "--enroll-key-file"];
  const token = `hdlj_${"a".repeat(64)}::hdl_live_0123456789abcdef`;
  writeFileSync(key, `${token}\n`);
  expect(readNodeFlags([...args, key]).flags).toMatchObject({ enrollKeyFile: key });
  expect(readEnrollKey(key)).toBe(token);
  expect(readEnrollKey(join(folder, "no-key"))).toBeUndefined();
  expect(() => readNodeFlags([...args, key, "--join-token-file", tokenFile])).toThrow(/not both/);
  writeFileSync(key, "hdl_live_0123456789abcdef");
  expect(() => readNodeFlags([...args, key])).toThrow(/not of the form.*heddle cluster enroll/);
});

test("node flags: the folder of a Secret's files is hidden, whose files are links", () => {
  const volume = join(folder, "volume");
  mkdirSync(join(volume, "..1"), { recursive: true });
  writeFileSync(join(volume, "..1", "token"), "0123456789abcdef");
  symlinkSync("..1", join(volume, "..data"));
  symlinkSync(join("..data", "token"), join(volume, "token"));
  const args = [...valid, "--cluster-token-file", join(volume, "token")];
  expect(readNodeFlags(args).flags.secretPaths).toContain(volume);
});

test("node id: kept over restarts; another directory is another node", () => {
  const id = nodeIdentity(join(folder, "a"));
  expect(nodeIdentity(join(folder, "a"))).toBe(id);
  expect(nodeIdentity(join(folder, "b"))).not.toBe(id);
  expect(() => nodeIdentity(join(tokenFile, "under-a-file"))).toThrow(/choose another --data/);
});
