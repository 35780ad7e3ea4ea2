import { createHash } from "node:crypto";
import { BoundedMap } from "@heddle/base/collections/bounded-map";
import { AppError } from "@heddle/base/errors";
import { errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from "jose";
import type { IdentityAdapter, TokenUser } from "../identity/identity-adapter.ts";
import { type ClaimNames, refusedToken, userOfClaims } from "./token-user.ts";

export interface TokenRules {
  readonly issuer: string;
  /** The token must be for one of them. */
  readonly audience: readonly string[];
  readonly algorithms: readonly string[];
  /** Accepted `typ` headers in lower case; `none` accepts tokens without one. */
  readonly tokenTypes: readonly string[];
  readonly clockSkewS: number;
  readonly claims: ClaimNames;
}

/** Longer tokens are refused unread. */
const MAX_TOKEN_CHARS = 8_192;
/** A verified token is trusted this long before it is verified again. */
const TRUSTED_MS = 40_000;
/** Verified tokens that are remembered; the oldest is evicted. */
const MAX_REMEMBERED = 10_000;

interface Verified {
  readonly user: TokenUser;
  /** When it must be verified again, or has expired. */
  readonly untilMs: number;
}

/** Verifies access tokens in the form of a JWT, signed by a key of the issuer. */
export class TokenVerifier implements IdentityAdapter {
  readonly #rules: TokenRules;
  readonly #findKey: JWTVerifyGetKey;
  readonly #now: () => number;
  readonly #isActive: ((text: string) => Promise<boolean>) | undefined;
  /** Keyed by the SHA-256 of the text. */
  readonly #remembered = new BoundedMap<string, Verified>(MAX_REMEMBERED);

  /** `now`: milliseconds since the epoch. `isActive`: whether the issuer has not revoked it. */
  constructor(
    rules: TokenRules,
    findKey: JWTVerifyGetKey,
    now: () => number,
    isActive?: (text: string) => Promise<boolean>,
  ) {
    this.#rules = rules;
    this.#findKey = findKey;
    this.#now = now;
    this.#isActive = isActive;
  }

  recognizes(text: string): boolean {
    return text.startsWith("eyJ") && text.split(".", 4).length === 3;
  }

  /** Throws `invalid_api_key` with the reason, or `unavailable` without keys of the issuer. */
  async verify(text: string): Promise<TokenUser> {
    if (text.length > MAX_TOKEN_CHARS) {
      throw refusedToken(
        `it has ${text.length} characters, and at most ${MAX_TOKEN_CHARS} are read`,
      );
    }
    const name = createHash("sha256").update(text).digest("base64");
    const known = this.#remembered.get(name);
    if (known && this.#now() < known.untilMs) return known.user;
    const fromMs = this.#now();
    const payload = await this.#payloadOf(text);
    const user = userOfClaims(payload, this.#rules.claims);
    if (this.#isActive && !(await this.#isActive(text))) {
      throw refusedToken("its identity provider has revoked it; sign in again");
    }
    this.#remembered.set(name, { user, untilMs: this.#trustedUntil(payload, fromMs) });
    return user;
  }

  async #payloadOf(text: string): Promise<JWTPayload> {
    const { issuer, audience, algorithms, tokenTypes, clockSkewS } = this.#rules;
    try {
      const { payload, protectedHeader } = await jwtVerify(text, this.#findKey, {
        issuer,
        audience: [...audience],
        algorithms: [...algorithms],
        clockTolerance: clockSkewS,
        currentDate: new Date(this.#now()),
        requiredClaims: ["iss", "aud", "exp", "sub"],
      });
      checkType(protectedHeader.typ, tokenTypes);
      checkKind(payload);
      return payload;
    } catch (error) {
      throw error instanceof AppError ? error : refusedToken(reasonOf(error));
    }
  }

  #trustedUntil({ exp = 0 }: JWTPayload, fromMs: number): number {
    const expiresAtMs = (exp + this.#rules.clockSkewS) * 1_000;
    return Math.min(fromMs + TRUSTED_MS, expiresAtMs);
  }
}

/** ID tokens and logout tokens are signed by the same keys, and differ by their type. */
function checkType(typ: string | undefined, accepted: readonly string[]): void {
  const type = (typ ?? "none").toLowerCase().replace(/^application\//, "");
  if (accepted.includes(type)) return;
  throw refusedToken(`its type is ${JSON.stringify(typ ?? "none")}, not ${accepted.join(" or ")}`);
}

/** Claims of ID tokens and of logout tokens alone, whatever type and audience a provider gives them. */
const OTHER_KINDS = ["at_hash", "c_hash", "events"] as const;

function checkKind(payload: JWTPayload): void {
  const other = OTHER_KINDS.find((name) => Object.hasOwn(payload, name));
  if (other !== undefined)
    throw refusedToken(`its claim \`${other}\` shows that it is no access token`);
}

/** Never contains a part of the token but names of its claims. */
function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTExpired) return "it has expired; sign in again";
  if (error instanceof errors.JWTClaimValidationFailed) return claimReason(error);
  if (error instanceof errors.JOSEAlgNotAllowed) return "its algorithm is not among those accepted";
  if (error instanceof errors.JWKSNoMatchingKey) return "it is signed by no key of the issuer";
  if (error instanceof errors.JWKSMultipleMatchingKeys) return "it does not name its key (kid)";
  if (error instanceof errors.JWSSignatureVerificationFailed) return "its signature is wrong";
  return "it is no valid signed JWT";
}

function claimReason({ claim, reason }: errors.JWTClaimValidationFailed): string {
  if (reason === "missing") return `it has no claim \`${claim}\``;
  if (claim === "nbf") return "it is not valid yet";
  if (claim === "aud") return "it is for another audience";
  if (claim === "iss") return "it is of another issuer";
  return `its claim \`${claim}\` is wrong`;
}
