// holds: key-lifecycle

import { createSecretKey } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createApiKey, hashApiKey, parseApiKey } from "./api-key.ts";

describe("API keys", () => {
  it("have the documented shape and parse to their id", () => {
    const key = createApiKey("live");
    expect(key.text).toMatch(/^hdl_live_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}$/);
    expect(parseApiKey(key.text)).toEqual({ ok: true, id: key.id, environment: "live" });
  });

  it("have the CRC-32 in base 62, high digits first, as their checksum", () => {
    // A change would refuse every existing key.
    const body = "hdl_live_AbCdEf12_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg";
    expect(parseApiKey(`${body}1T1h8V`)).toMatchObject({ ok: true, id: "AbCdEf12" });
  });

  it("differ each time", () => {
    const texts = new Set(Array.from({ length: 1000 }, () => createApiKey("live").text));
    expect(texts.size).toBe(1000);
  });

  it("draw every letter equally often", () => {
    const letters = Array.from({ length: 1000 }, () => createApiKey("live").text.slice(9, 61)).join(
      "",
    );
    // 256 is no multiple of 62: the first 8 letters would be 15.6 % instead of 12.9 %.
    const first = letters.replaceAll(/[^0-7]/g, "").length / letters.replaceAll("_", "").length;
    expect(first).toBeGreaterThan(0.12);
    expect(first).toBeLessThan(0.14);
  });

  it("refuse an environment with invalid characters", () => {
    expect(() => createApiKey("a_b")).toThrow(/environment/);
    expect(() => createApiKey("")).toThrow(/environment/);
  });

  it("detect any single wrong character by the checksum", () => {
    const { text } = createApiKey("live");
    const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    fc.assert(
      fc.property(
        fc.integer({ min: "hdl_live_12345678_".length, max: text.length - 1 }),
        fc.constantFrom(...alphabet),
        (at, letter) => {
          fc.pre(text[at] !== letter);
          const typo = text.slice(0, at) + letter + text.slice(at + 1);
          expect(parseApiKey(typo)).toEqual({ ok: false, reason: "checksum" });
        },
      ),
    );
  });

  it("detect two swapped characters by the checksum", () => {
    const { text } = createApiKey("live");
    const at = [...text].findIndex((letter, i) => i > 20 && letter !== text[i + 1]);
    const swapped = `${text.slice(0, at)}${text[at + 1]}${text[at]}${text.slice(at + 2)}`;
    expect(parseApiKey(swapped)).toEqual({ ok: false, reason: "checksum" });
  });

  it("are malformed when cut, extended or of another kind", () => {
    const { text } = createApiKey("live");
    for (const bad of [
      "",
      "sk-abc",
      text.slice(0, -1),
      `${text}0`,
      text.toUpperCase(),
      ` ${text}`,
    ]) {
      expect(parseApiKey(bad)).toEqual({ ok: false, reason: "malformed" });
    }
  });

  it("hash differently under another pepper", () => {
    const { text } = createApiKey("live");
    const hash = hashApiKey(text, createSecretKey(Buffer.alloc(32, 1)));
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
    expect(hashApiKey(text, createSecretKey(Buffer.alloc(32, 2)))).not.toBe(hash);
  });
});
