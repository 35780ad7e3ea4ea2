// holds: engine-pull

import { describe, expect, it } from "vitest";
import { HostPolicy } from "./host-policy.ts";

const check = (url: string, ...configured: string[]) =>
  new HostPolicy(configured).check(new URL(url));

/** What the policy's look-up gives for a name, as node:http would get it. */
function lookUp(policy: HostPolicy, name: string): Promise<string> {
  return new Promise((resolve, reject) => {
    policy.lookup(name, { all: false }, (error, address) => {
      if (error) reject(error);
      else resolve(String(address));
    });
  });
}

describe("HostPolicy", () => {
  it("allows the hub and its content hosts, and those that the operator lists", () => {
    check("https://huggingface.co/x");
    check("https://cdn-lfs-us-1.hf.co/x");
    check("https://MODELS.example.com/x", "models.example.com");
    check("https://a.b.example.com/x", "*.example.com");
  });

  it("refuses every other host, look-alikes among them", () => {
    for (const host of ["example.com", "evilhuggingface.co", "hf.co", "huggingface.co.evil.com"]) {
      expect(() => check(`https://${host}/x`)).toThrow("is not on the allow-list");
    }
    expect(() => check("https://example.com/x", "*.example.com")).toThrow("allow-list");
  });

  it("refuses plain HTTP but to a loopback host that the operator listed", () => {
    expect(() => check("http://huggingface.co/x")).toThrow("use https://");
    expect(() => check("http://models.example.com/", "models.example.com")).toThrow("use https://");
    check("http://127.0.0.1:8080/x", "127.0.0.1");
    check("http://localhost:8080/x", "localhost");
    check("http://[::1]:8080/x", "::1");
    expect(() => check("file:///etc/passwd", "")).toThrow("is not allowed for");
  });

  it("refuses a name that resolves to a private address, unless that name is listed", async () => {
    await expect(lookUp(new HostPolicy(["*.localhost"]), "localhost")).rejects.toThrow(
      /localhost is at .*, which is not a public address/,
    );
    expect(await lookUp(new HostPolicy(["localhost"]), "localhost")).toMatch(/^(127\.|::1)/);
  });

  it("passes the resolver's refusal on", async () => {
    await expect(lookUp(new HostPolicy(), "weights.invalid")).rejects.toThrow(
      /ENOTFOUND|EAI_AGAIN/,
    );
  });

  it("refuses addresses of special ranges, in all the ways to write them", async () => {
    // A resolver gives a literal address back as it is.
    for (const address of [
      "0.0.0.0",
      "10.1.2.3",
      "100.100.100.200",
      "127.0.0.1",
      "169.254.169.254",
      "172.31.0.1",
      "192.168.1.1",
      "224.0.0.1",
      "255.255.255.255",
      "::",
      "::1",
      "::ffff:10.0.0.1",
      "::ffff:7f00:1",
      "64:ff9b::a00:1",
      "2002:a00:1::",
      "fd00:ec2::254",
      "fe80::1",
    ]) {
      await expect(lookUp(new HostPolicy(), address), address).rejects.toThrow(
        "not a public address",
      );
    }
    for (const address of ["1.1.1.1", "172.32.0.1", "2606:4700::1111"]) {
      expect(await lookUp(new HostPolicy(), address)).toBe(address);
    }
  });

  it("refuses a literal address that is not listed by itself", () => {
    const hosts = ["10.1.2.3", "0x0a.1.2.3", "167838211", "[::ffff:10.1.2.3]", "012.1.2.3"];
    hosts.push("10.1.515", "１０.1.2.3", "x.example@10.1.2.3", "10.1.2.3.:443");
    for (const host of hosts) {
      expect(() => check(`https://${host}/x`, "*.2.3")).toThrow(/allow-list|not a public address/);
    }
    check("https://10.1.2.3/x", "10.1.2.3");
  });

  it("gives all checked addresses where node asks for all", async () => {
    const addresses = await new Promise<unknown>((resolve, reject) => {
      new HostPolicy(["localhost"]).lookup("localhost", { all: true }, (error, list) =>
        error ? reject(error) : resolve(list),
      );
    });
    expect(addresses).toContainEqual({
      address: expect.stringMatching(/^(127\.|::1)/),
      family: expect.any(Number),
    });
  });
});
