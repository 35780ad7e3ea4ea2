import { describe, expect, it } from "vitest";
import { readConfig, usageText } from "./config.ts";

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

  it("keeps the cluster token in the data directory by default", () => {
    expect(readConfig(["--data", "/x"], {}).clusterTokenFile).toBe("/x/cluster-token");
    expect(readConfig(["--cluster-token-file", "/t"], {}).clusterTokenFile).toBe("/t");
  });

  it.each(["0.0.0.0", "::", "10.0.0.1", "example.org"])(
    "refuses to listen on %s without TLS unless that is allowed",
    (host) => {
      expect(() => readConfig(["--http-host", host], {})).toThrow(/--insecure-bind/);
      expect(readConfig(["--http-host", host, "--insecure-bind"], {}).httpHost).toBe(host);
      expect(readConfig(["--grpc-host", host], {}).tls).toBe(true);
      expect(readConfig(["--grpc-host", host, "--insecure-bind"], {}).tls).toBe(false);
      const peers = ["--peers", `master-1=127.0.0.1:1,b=${host}:1`];
      expect(readConfig(peers, {}).tls).toBe(true);
    },
  );

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
    expect(() => readConfig(args, {})).toThrow(/http-port.*max-calls.*log-level.*profile/);
  });

  it("refuses unknown flags", () => {
    expect(() => readConfig(["--htpp-port", "1"], {})).toThrow(/htpp-port.*--help/);
  });

  it("explains every flag", () => {
    expect(usageText()).toContain("--http-port");
    expect(usageText()).toContain("HEDDLE_HTTP_PORT");
  });
});
