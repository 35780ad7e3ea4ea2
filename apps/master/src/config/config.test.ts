// holds: cli-addresses, sec-tls-default

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { MASTER_SETTING_NAMES } from "@heddle/contracts/configuration/master-settings";
import { describe, expect, it } from "vitest";
import { readConfig, readConfigFile } from "./config.ts";

describe("readConfig", () => {
  it("starts on loopback by default", () => {
    expect(readConfig([], {})).toMatchObject({
      httpHost: "127.0.0.1",
      grpcHost: "127.0.0.1",
      maxBodyBytes: 4 * 1024 * 1024,
      profile: undefined,
    });
  });

  it("refuses a bound on bodies being read that one maximum body would fill", () => {
    const args = ["--max-body-bytes", "4096", "--max-reading-bytes"];
    expect(() => readConfig([...args, "8191"], {})).toThrow(/twice --max-body-bytes/);
    expect(readConfig([...args, "8192"], {}).maxReadingBytes).toBe(8192);
  });

  it("prefers flags to the environment and that to the defaults", () => {
    const env = { HEDDLE_HTTP_PORT: "1", HEDDLE_GRPC_PORT: "2" };
    expect(readConfig(["--http-port", "3"], env)).toMatchObject({ httpPort: 3, grpcPort: 2 });
  });

  it("reads a file below flags and variables, with its line in faults", async () => {
    const folder = mkdtempSync(join(tmpdir(), "heddle-config-"));
    const path = join(folder, "heddle.yaml");
    const read = async (text: string, args: readonly string[] = [], env = {}) => {
      writeFileSync(path, text);
      return readConfig(args, env, await readConfigFile(["--config", path], {}));
    };
    const text = "http_port: 1\ngrpc_port: 2\nraft_port: 3\nca_file: ./ca.pem\n";
    expect(await read(text, ["--raft-port", "5"], { HEDDLE_GRPC_PORT: "4" })).toMatchObject({
      httpPort: 1,
      grpcPort: 4,
      raftPort: 5,
      authorityFile: join(folder, "ca.pem"),
    });
    await expect(read("name: a\nhtpp_port: 1\n")).rejects.toThrow(
      `${path}:2: htpp_port is no setting; the nearest is http_port`,
    );
    expect(await readConfigFile([], {})).toBeUndefined();
    rmSync(folder, { recursive: true });
  });

  it("refuses a model file that is no GGUF, and a certificate without its key", () => {
    const model = ["--model-file", "/model.bin"];
    expect(() => readConfig(model, {})).toThrow(/--model-file must end in \.gguf/);
    const half = ["--http-cert-file", "/c"];
    expect(() => readConfig(half, {})).toThrow(/--http-cert-file needs --http-key-file too/);
  });

  it("uses every setting, itself or to find faults", () => {
    const code = [
      new URL("config.ts", import.meta.url),
      new URL("../../../../libs/contracts/src/configuration/master-faults.ts", import.meta.url),
    ].map((url) => readFileSync(fileURLToPath(url), "utf8"));
    const isUsed = (name: string) => code.some((text) => new RegExp(`\\b${name}\\b`).test(text));
    expect(MASTER_SETTING_NAMES.filter((name) => !isUsed(name))).toEqual([]);
  });

  it("keeps the cluster token in the data directory by default", () => {
    expect(readConfig(["--data", "/x"], {}).clusterTokenFile).toBe("/x/cluster-token");
    expect(readConfig(["--cluster-token-file", "/t"], {}).clusterTokenFile).toBe("/t");
  });

  it.each(["0.0.0.0", "::", "10.0.0.1", "example.org"])(
    "serves HTTP on %s without TLS only with --insecure-bind",
    (host) => {
      const args = ["--http-host", host];
      expect(() => readConfig(args, {})).toThrow(/--http-host.*--insecure-bind/);
      expect(() => readConfig([...args, "--insecure-nodes"], {})).toThrow(/--insecure-bind/);
      const open = readConfig([...args, "--insecure-bind"], {});
      expect(open).toMatchObject({ httpHost: host, isHttpExposed: true });
      const certificate = ["--http-cert-file", "/c", "--http-key-file", "/k"];
      expect(readConfig([...args, ...certificate], {}).isHttpExposed).toBe(false);
      expect(readConfig(["--insecure-bind"], {}).isHttpExposed).toBe(false);
    },
  );

  it.each([
    ["0.0.0.0", "0.0.0.0"],
    ["::", "[::]"],
    ["10.0.0.1", "10.0.0.1"],
    ["example.org", "example.org"],
  ])("turns TLS between nodes off on %s only with --insecure-nodes", (host, dialled) => {
    const peers = ["--peers", `master-1=127.0.0.1:1,b=${dialled}:1`];
    for (const args of [["--grpc-host", host], peers]) {
      const secure = { tls: true, isExposed: false };
      expect(readConfig(args, {})).toMatchObject(secure);
      expect(readConfig([...args, "--insecure-bind"], {})).toMatchObject(secure);
      expect(readConfig(args, { HEDDLE_INSECURE_BIND: "true" })).toMatchObject(secure);
      const plain = { tls: false, isExposed: true };
      expect(readConfig([...args, "--insecure-nodes"], {})).toMatchObject(plain);
      expect(readConfig(args, { HEDDLE_INSECURE_NODES: "true" })).toMatchObject(plain);
      expect(readConfig([...args, "--insecure-nodes", "--tls"], {})).toMatchObject(secure);
    }
    expect(readConfig([], {})).toMatchObject({ tls: false, isExposed: false });
  });

  it.each(["b=h:0", "b=h:65536", "b=h:99999", "b=h", "=h:1", "b=::1:8081"])(
    "refuses --peers %s",
    (peer) => {
      const args = ["--peers", `master-1=127.0.0.1:1,${peer}`];
      expect(() => readConfig(args, {})).toThrow(/--peers takes name=host:port/);
    },
  );

  it("takes an equal peer twice, and refuses one with two addresses", () => {
    const peers = (own: string) => ["--peers", `master-1=127.0.0.1:1,b=127.0.0.1:2,${own}`];
    const names = [...readConfig(peers("master-1=127.0.0.1:1"), {}).peers.keys()];
    expect(names).toEqual(["master-1", "b"]);
    expect(() => readConfig(peers("b=127.0.0.1:3"), {})).toThrow(/--peers names b with two/);
  });

  it("lists all faults at once", () => {
    const args = [
      "--http-port",
      "70000",
      "--max-calls",
      "x",
      "--profile",
      "huge",
      "--log-level",
      "loud",
    ];
    expect(() => readConfig(args, {})).toThrow(/http-port.*profile.*log-level.*max-calls/);
  });

  it("refuses unknown flags", () => {
    expect(() => readConfig(["--htpp-port", "1"], {})).toThrow(/htpp-port.*--help/);
  });
});
