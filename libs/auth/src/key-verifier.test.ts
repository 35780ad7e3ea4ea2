// holds: api-wrong-key-message, key-lifecycle

import { createSecretKey } from "node:crypto";
import { describe, expect, it } from "vitest";
import { createApiKey, hashApiKey } from "./api-key.ts";
import { KeyVerifier, type StoredKey } from "./key-verifier.ts";

const pepper = createSecretKey(Buffer.alloc(32, 3));

function setUp(record: Partial<StoredKey> = {}) {
  const { id, text } = createApiKey("live");
  const keys = new Map<string, StoredKey>([
    [id, { id, hash: hashApiKey(text, pepper), ...record }],
  ]);
  const clock = { now: 1_000 };
  const disabled = new Set<string>();
  const verifier = new KeyVerifier<StoredKey>({
    lookup: (wanted) => keys.get(wanted),
    pepper,
    now: () => clock.now,
    isDisabled: ({ id: of }) => disabled.has(of),
  });
  return { id, text, keys, clock, disabled, verifier };
}

function reasonOf(result: ReturnType<KeyVerifier<StoredKey>["verify"]>): string {
  return result.ok ? "ok" : result.reason;
}

describe("KeyVerifier", () => {
  it("returns the record of a valid key, the first time and from the cache", () => {
    const { id, text, verifier } = setUp();
    for (let i = 0; i < 2; i++) {
      expect(verifier.verify(text)).toMatchObject({ ok: true, key: { id } });
    }
  });

  it("distinguishes a typo, an unknown, a revoked and an expired key", () => {
    const { text, verifier } = setUp();
    const typo = text.slice(0, -1) + (text.endsWith("0") ? "1" : "0");
    expect(verifier.verify(typo)).toMatchObject({ reason: "checksum", message: /mistyped/ });
    expect(verifier.verify("sk-123")).toMatchObject({ reason: "malformed", message: /form/ });
    const unknown = verifier.verify(createApiKey("live").text);
    expect(unknown).toMatchObject({ reason: "unknown", message: /unknown/ });
    expect(reasonOf(setUp({ revokedAtMs: 5 }).verifier.verify(text))).toBe("unknown");
    const revoked = setUp({ revokedAtMs: 5 });
    expect(revoked.verifier.verify(revoked.text)).toMatchObject({ message: /revoked/ });
    const expired = setUp({ expiresAtMs: 1_000 });
    expect(expired.verifier.verify(expired.text)).toMatchObject({ message: /expired/ });
  });

  it("begins every message as OpenAI does, because clients match it", () => {
    const { text, verifier } = setUp({ revokedAtMs: 5 });
    for (const given of [text, `${text}x`, "sk-123", createApiKey("live").text]) {
      const result = verifier.verify(given);
      expect(result.ok ? "" : result.message).toMatch(/^Incorrect API key provided: `/);
    }
  });

  it("refuses a cached key at once when it is revoked, expires or is replaced", () => {
    const { id, text, keys, clock, verifier } = setUp({ expiresAtMs: 2_000 });
    const record = keys.get(id) as StoredKey;
    expect(verifier.verify(text).ok).toBe(true);
    keys.set(id, { ...record, revokedAtMs: 1_500 });
    expect(reasonOf(verifier.verify(text))).toBe("revoked");
    keys.set(id, record);
    expect(verifier.verify(text).ok).toBe(true);
    clock.now = 2_000;
    expect(reasonOf(verifier.verify(text))).toBe("expired");
    keys.set(id, { ...record, expiresAtMs: undefined, hash: "00".repeat(32) });
    expect(reasonOf(verifier.verify(text))).toBe("unknown");
  });

  it("refuses a key of a service account that is disabled, until it is enabled", () => {
    const { id, text, disabled, verifier } = setUp();
    expect(verifier.verify(text).ok).toBe(true);
    disabled.add(id);
    expect(reasonOf(verifier.verify(text))).toBe("disabled");
    expect(reasonOf(verifier.verifyId(id))).toBe("disabled");
    disabled.delete(id);
    expect(verifier.verify(text).ok).toBe(true);
  });

  it("hashes a text once while it is cached, and caches 10,000 of them", () => {
    const { text } = createApiKey("live");
    const others = Array.from({ length: 10_000 }, () => createApiKey("live").text);
    const keys = new Map(
      [text, ...others].map((each) => [each.slice(9, 17), hashApiKey(each, pepper)]),
    );
    let hashed = 0;
    const verifier = new KeyVerifier<StoredKey>({
      lookup: (id) => ({ id, hash: keys.get(id) ?? "" }),
      now: () => 0,
      isDisabled: () => false,
      get pepper() {
        hashed++;
        return pepper;
      },
    });
    const hashesOf = (texts: readonly string[]) => {
      hashed = 0;
      expect(texts.every((each) => verifier.verify(each).ok)).toBe(true);
      return hashed;
    };
    expect(hashesOf([text, text])).toBe(1);
    expect(hashesOf(others.slice(0, 9_999))).toBe(9_999);
    expect(hashesOf([text])).toBe(0);
    expect(hashesOf([...others.slice(9_999), ...others])).toBe(1);
    expect(hashesOf([text])).toBe(1);
  });

  it("refuses a key whose stored hash has another length", () => {
    const { id, text, keys, verifier } = setUp();
    keys.set(id, { id, hash: "00" });
    expect(reasonOf(verifier.verify(text))).toBe("unknown");
  });

  it("names a key by the part before its secret, other texts by four letters", () => {
    const { id, text, verifier } = setUp({ revokedAtMs: 1 });
    const messageOf = (given: string) => {
      const result = verifier.verify(given);
      return result.ok ? "" : result.message.split("`")[1];
    };
    expect(messageOf(text)).toBe(`hdl_*_${id}_...`);
    expect(messageOf(`${text}x`)).toBe(`hdl_live_${id}_...`);
    expect(messageOf(`x${text}`)).toBe("xhdl...");
    expect(messageOf("hdl_live_short_x")).toBe("hdl_...");
    expect(messageOf("s\u0000~\u007fsecret")).toBe("s?~?...");
  });

  it("never repeats a secret in a message", () => {
    const { text, verifier } = setUp({ revokedAtMs: 1 });
    const secret = text.split("_")[3] as string;
    for (const given of [text, `${text}x`, text.replace("live", "test")]) {
      const result = verifier.verify(given);
      expect(result.ok ? "" : result.message).not.toContain(secret.slice(0, 8));
    }
  });
});
