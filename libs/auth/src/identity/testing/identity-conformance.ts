import type { AppError } from "@heddle/base/errors";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { IdentityAdapter, TokenUser } from "../identity-adapter.ts";

/** What a token says of its user. */
export interface IssuedClaims {
  readonly subject: string;
  readonly groups?: readonly string[];
  readonly roles?: readonly string[];
}

/** An adapter and its provider, which the tests change. */
export interface IdentityTrial {
  readonly adapter: IdentityAdapter;
  /** A token of the provider. */
  issue(claims: IssuedClaims): Promise<string>;
  /** One whose time has passed. */
  issueExpired(claims: IssuedClaims): Promise<string>;
  /** One that looks like the provider's, and is another's. */
  forge(claims: IssuedClaims): Promise<string>;
  /** One for another service than this cluster. */
  issueForAnother(claims: IssuedClaims): Promise<string>;
  /** A new adapter whose provider gives no answer. */
  unreachable(): IdentityAdapter;
  close(): Promise<void>;
}

const API_KEY = "hdl_live_Ab3dEf9h_0123456789012345678901234567890123456789012abcdef";
/** A refusal must not depend on the length of what was sent. */
const HUGE = 1_000_000;

/** The contract of the port `IdentityAdapter`. */
export function identityConformance(name: string, open: () => Promise<IdentityTrial>): void {
  describe(`identity conformance: ${name}`, () => {
    let trial: IdentityTrial;
    beforeAll(async () => {
      trial = await open();
    });
    afterAll(() => trial.close());
    namesUsers(() => trial);
    refusesOthers(() => trial);
  });
}

function namesUsers(at: () => IdentityTrial): void {
  const userOf = async (claims: IssuedClaims): Promise<TokenUser> =>
    at().adapter.verify(await at().issue(claims));

  it("users: have an id that is the same for each token, and no other user's", async () => {
    const [alice, again, bob] = [
      await userOf({ subject: "alice" }),
      await userOf({ subject: "alice", groups: ["team"] }),
      await userOf({ subject: "bob" }),
    ];
    expect(alice.subject).toBe("alice");
    expect(alice.id).toMatch(/^usr_[\w-]{16,64}$/);
    expect(again.id).toBe(alice.id);
    expect(bob.id).not.toBe(alice.id);
  });

  it("users: have the groups and roles of their token alone; without any, none", async () => {
    const some = await userOf({ subject: "alice", groups: ["a", "b c"], roles: ["viewer"] });
    expect(some).toMatchObject({ groups: ["a", "b c"], roles: ["viewer"] });
    expect(await userOf({ subject: "alice" })).toMatchObject({ groups: [], roles: [] });
  });

  it("tokens: are known by their form, in which no API key is", async () => {
    const { adapter } = at();
    expect(adapter.recognizes(await at().issue({ subject: "alice" }))).toBe(true);
    for (const text of [API_KEY, "", "x", "a b", "Bearer"]) {
      expect(adapter.recognizes(text), text).toBe(false);
    }
  });
}

function refusesOthers(at: () => IdentityTrial): void {
  const refusal = async (token: string): Promise<AppError> => {
    const refused = await at()
      .adapter.verify(token)
      .then(
        ({ subject }) => new Error(`it was taken for ${subject}`),
        (error: AppError) => error,
      );
    expect(refused).toMatchObject({ code: "invalid_api_key" });
    return refused as AppError;
  };

  it("tokens: an expired, a foreign and a forged one are refused", async () => {
    const claims = { subject: "canary-subject", groups: ["canary-group"] };
    for (const token of [
      await at().issueExpired(claims),
      await at().issueForAnother(claims),
      await at().forge(claims),
    ]) {
      const { message } = await refusal(token);
      for (const part of ["canary", ...token.split(".")]) expect(message).not.toContain(part);
    }
  });

  it("tokens: one with any changed character is refused, also after the right one", async () => {
    const token = await at().issue({ subject: "alice" });
    await at().adapter.verify(token);
    const places = Array.from({ length: 40 }, (_, i) => Math.floor((i * (token.length - 2)) / 40));
    for (const place of places) {
      // The last character of a part may have bits without a meaning.
      if (token.slice(place, place + 2).includes(".")) continue;
      const other = token[place] === "A" ? "B" : "A";
      await refusal(token.slice(0, place) + other + token.slice(place + 1));
    }
  });

  it("tokens: a huge or empty one is refused", async () => {
    const token = await at().issue({ subject: "alice" });
    await refusal(token + "A".repeat(HUGE));
    await refusal("");
    await refusal(API_KEY);
  });

  it("provider: without an answer of it no token is refused or accepted", async () => {
    const token = await at().issue({ subject: "alice" });
    await expect(at().unreachable().verify(token)).rejects.toMatchObject({ code: "unavailable" });
  });
}
