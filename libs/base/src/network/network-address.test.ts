// holds: cli-addresses

import { expect, it } from "vitest";
import { isHostPort, isLoopback, splitHostPort } from "./network-address.ts";

it.each(["a:1", "10.0.0.1:65535", "[::1]:8081"])("network address: %s can be dialled", (text) => {
  expect(isHostPort(text)).toBe(true);
});

it.each(["a", "a:", "a:0", "a:65536", "a:99999", "::1:8081", "a=b:1", "a b:1", "http://a:1"])(
  "network address: %s is refused",
  (text) => expect(isHostPort(text)).toBe(false),
);

it("network address: an IPv6 host is split without its brackets", () => {
  expect(splitHostPort("[::1]:8081")).toEqual(["::1", "8081"]);
});

it("network address: only the machine's own addresses are loopback", () => {
  expect(["localhost", "::1", "127.9.8.7"].every(isLoopback)).toBe(true);
  expect(["0.0.0.0", "::", "127.0.0.1.example.org", "10.0.0.1"].some(isLoopback)).toBe(false);
});
