import { describe, expect, it } from "vitest";
import { createApiKey, hashApiKey } from "./api-key.ts";
import { KeyVerifier, type StoredKey } from "./key-verifier.ts";

const pepper = Buffer.alloc(32, 3);

function setUp(record: Partial<StoredKey> = {}) {
  const { id, text } = createApiKey("live");
  const keys = new Map<string, StoredKey>([
    [id, { id, hash: hashApiKey(text, pepper), ...record }],
  ]);
  const clock = { now: 1_000 };
  const verifier = new KeyVerifier<StoredKey>({
    lookup: (wanted) => keys.get(wanted),
    pepper,
    now: () => clock.now,
  });
  return { id, text, keys, clock, verifier };
}

function reasonOf(result: ReturnType<KeyVerifier<StoredKey>["verify"]>): string {
  return result.ok ? "ok" : result.reason;
}

describe("KeyVerifier", () => {
  it("gives the record of a right key, the first time and from memory", () => {
    const { id, text, verifier } = setUp();
    for (let i = 0; i < 2; i++) {
      expect(verifier.verify(text)).toMatchObject({ ok: true, key: { id } });
    }
  });

  it("tells a typo, an unknown, a revoked and an expired key apart, in words too", () => {
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

  it("refuses a remembered key at once when it is revoked, expires or is replaced", () => {
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

  it("never repeats a secret in a message", () => {
    const { text, verifier } = setUp({ revokedAtMs: 1 });
    const secret = text.split("_")[3] as string;
    for (const given of [text, `${text}x`, text.replace("live", "test")]) {
      const result = verifier.verify(given);
      expect(result.ok ? "" : result.message).not.toContain(secret.slice(0, 8));
    }
  });
});
