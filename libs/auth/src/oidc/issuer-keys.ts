import { AppError } from "@heddle/base/errors";
import { isLoopback } from "@heddle/base/network/network-address";
import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTVerifyGetKey } from "jose";
import { fetchJson } from "./fetch-json.ts";

export interface IssuerKeysOptions {
  readonly issuer: string;
  /** In place of the one that the issuer's metadata name. */
  readonly jwksUri?: string | undefined;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Called when keys could not be read. */
  readonly onFailure?: ((error: Error) => void) | undefined;
}

/** Keys of this age are read again while they are used. */
const FRESH_MS = 600_000;
/** Keys that cannot be read again are used until this age. */
const STALE_MS = 86_400_000;
/** Pause between two reads, whatever callers send. */
const COOL_DOWN_MS = 10_000;
const MAX_KEYS = 100;

interface ReadKeys {
  readonly find: ReturnType<typeof createLocalJWKSet>;
  readonly atMs: number;
}

/**
 * The public keys of an issuer.
 * - One read at a time, and one in 10 s: unknown key ids cannot make it ask more often.
 * - An unknown key id reads them again, so that a new key is known at once.
 * - If they cannot be read, those from before are used for a day.
 */
export class IssuerKeys {
  readonly #options: IssuerKeysOptions;
  #keys: ReadKeys | undefined;
  #reading: Promise<void> | undefined;
  #triedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: IssuerKeysOptions) {
    this.#options = options;
  }

  /** The key of a token's header, for `jwtVerify`. Throws `unavailable` without any keys. */
  readonly find: JWTVerifyGetKey = async (header, token) => {
    const keys = await this.#usable();
    try {
      return await keys.find(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey) || !this.#mayRead()) throw error;
      await this.#read();
      return (await this.#usable()).find(header, token);
    }
  };

  async #usable(): Promise<ReadKeys> {
    const ageMs = this.#keys ? this.#options.now() - this.#keys.atMs : Number.POSITIVE_INFINITY;
    if (ageMs > STALE_MS) {
      this.#keys = undefined;
      // A read that runs already is awaited.
      if (this.#reading || this.#mayRead()) await this.#read();
    } else if (ageMs > FRESH_MS && this.#mayRead()) void this.#read();
    if (this.#keys) return this.#keys;
    const message =
      "The identity provider's keys cannot be read now, so no access token can be checked. Try again, or use an API key.";
    throw new AppError("unavailable", message, { retryAfterMs: COOL_DOWN_MS });
  }

  #mayRead(): boolean {
    return this.#options.now() - this.#triedAtMs >= COOL_DOWN_MS;
  }

  /** Never rejects. */
  #read(): Promise<void> {
    this.#reading ??= this.#readOnce().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readOnce(): Promise<void> {
    const { issuer, jwksUri, now, onFailure } = this.#options;
    this.#triedAtMs = now();
    try {
      const uri = jwksUri ?? (await issuerMetadata(issuer)).jwks_uri;
      const keys = keySetOf(await fetchJson(secureUrl(uri, "jwks_uri")));
      this.#keys = { find: createLocalJWKSet(keys), atMs: now() };
    } catch (error) {
      onFailure?.(error as Error);
    }
  }
}

interface IssuerMetadata {
  readonly jwks_uri?: unknown;
}

/** The metadata that the issuer publishes about itself. */
async function issuerMetadata(issuer: string): Promise<IssuerMetadata> {
  const url = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const metadata = (await fetchJson(secureUrl(url, "issuer"))) as { issuer?: unknown };
  if (metadata.issuer === issuer) return metadata as IssuerMetadata;
  throw new Error(`the metadata at ${url} are of the issuer ${JSON.stringify(metadata.issuer)}`);
}

function keySetOf(given: unknown): JSONWebKeySet {
  const { keys } = (given ?? {}) as { keys?: unknown };
  if (Array.isArray(keys) && keys.length <= MAX_KEYS) return given as JSONWebKeySet;
  throw new Error(`the key set has no list of at most ${MAX_KEYS} keys`);
}

/** Plain HTTP only on loopback: the keys decide who may call. */
function secureUrl(given: unknown, name: string): URL {
  const url = URL.parse(String(given));
  if (url?.protocol === "https:") return url;
  if (url?.protocol === "http:" && isLoopback(url.hostname)) return url;
  throw new Error(`the ${name} ${JSON.stringify(given)} is not an https:// address`);
}
