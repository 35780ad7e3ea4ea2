import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import {
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  type JWK,
  type JWTPayload,
  SignJWT,
} from "jose";

/** `heddle api` with the secret `p+w/d`, encoded as RFC 6749 says. */
const INTROSPECTING_CLIENT = `Basic ${Buffer.from("heddle+api:p%2Bw%2Fd").toString("base64")}`;

export interface SigningKey {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  readonly jwk: JWK;
}

/** An issuer's metadata and keys over real HTTP; tests change the keys, or break it. */
export class KeyServer {
  readonly #server = createServer(async (request, response) => {
    this.reads++;
    await this.held;
    if (this.status !== 200) {
      response.writeHead(this.status).end();
      return;
    }
    response.writeHead(200, { "content-type": "application/json" });
    if (request.url === "/introspect") {
      void text(request).then((body) => {
        const token = new URLSearchParams(body).get("token") ?? "";
        const isClient = request.headers.authorization === INTROSPECTING_CLIENT;
        const active = isClient && !this.revoked.has(token);
        response.end(this.text ?? JSON.stringify({ active }));
      });
      return;
    }
    const isKeys = request.url === "/keys";
    const metadata = { issuer: this.namedIssuer ?? this.issuer, jwks_uri: `${this.issuer}/keys` };
    const keys = { keys: this.keys.map(({ jwk }) => jwk) };
    response.end(this.text ?? JSON.stringify(isKeys ? keys : metadata));
  });
  keys: SigningKey[] = [];
  /** Tokens that `/introspect` calls inactive. */
  readonly revoked = new Set<string>();
  /** Requests until now: two for each read of the keys. */
  reads = 0;
  /** Answers come after it. */
  held: Promise<void> | undefined;
  status = 200;
  /** Replaces every answer. */
  text: string | undefined;
  /** In place of its own. */
  namedIssuer: string | undefined;

  get issuer(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Adds a key of its own to the published ones. */
  async addKey(kid: string, alg = "RS256"): Promise<SigningKey> {
    const key = await signingKey(kid, alg);
    this.keys.push(key);
    return key;
  }
}

/** A new key that no server publishes. */
export async function signingKey(kid: string, alg = "RS256"): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  const jwk = { ...(await exportJWK(publicKey)), kid, alg, use: "sig" };
  return { kid, alg, privateKey, publicKey, jwk };
}

/** A token as that key signs it; undefined members of the header and claims are left out. */
export async function signedToken(
  { kid, alg, privateKey }: SigningKey,
  claims: JWTPayload,
  header: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const fields = { alg, kid, typ: "at+jwt", ...header };
  return new SignJWT(claims)
    .setProtectedHeader(JSON.parse(JSON.stringify(fields)))
    .sign(privateKey);
}

/** A token that has exactly this many characters. */
export async function tokenOfLength(
  chars: number,
  key: SigningKey,
  claims: JWTPayload,
  header: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const padded = (size: number, more: string) =>
    signedToken(key, { ...claims, pad: "x".repeat(size) }, { ...header, pad: more });
  // Base64 has no text of every length; one of two headers makes up for it.
  for (const more of ["", "x"]) {
    const { length } = await padded(0, more);
    const least = Math.floor(((chars - length) * 3) / 4) - 2;
    for (let size = least; size < least + 5; size++) {
      const token = await padded(size, more);
      if (token.length === chars) return token;
    }
  }
  throw new Error(`no token has ${chars} characters`);
}
