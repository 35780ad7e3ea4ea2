import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { KeyServer, type SigningKey, signedToken } from "@heddle/auth/oidc/testing/key-server";
import type { JWTPayload } from "jose";
import { startTestMaster, type TestMaster } from "../test-master.ts";

const AUDIENCE = "heddle";
const LIFETIME_S = 300;

/** Further settings of the auth file; files that they name are in the folder. */
type MoreSettings = (
  issuer: string,
  folder: string,
) => { readonly oauth2?: object; readonly rbac?: object };

/** A master that accepts the access tokens of an issuer, which signs them for tests. */
export class TokenMaster {
  readonly issuer: KeyServer;
  readonly signer: SigningKey;
  readonly server: TestMaster;
  readonly #folder: string;

  private constructor(issuer: KeyServer, signer: SigningKey, server: TestMaster, folder: string) {
    this.issuer = issuer;
    this.signer = signer;
    this.server = server;
    this.#folder = folder;
  }

  static async start(settingsOf: MoreSettings = () => ({})): Promise<TokenMaster> {
    const issuer = new KeyServer();
    await issuer.start();
    const signer = await issuer.addKey("k1");
    const folder = mkdtempSync(join(tmpdir(), "heddle-tokens-"));
    const { oauth2, ...more } = settingsOf(issuer.issuer, folder);
    const place = { issuer: issuer.issuer, audience: AUDIENCE, ...oauth2 };
    const authFile = join(folder, "auth.json");
    writeFileSync(authFile, JSON.stringify({ method: "oauth2", oauth2: place, ...more }));
    return new TokenMaster(issuer, signer, await startTestMaster({ authFile }), folder);
  }

  tokenOf(claims: JWTPayload, by = this.signer): Promise<string> {
    const exp = Math.floor(Date.now() / 1_000) + LIFETIME_S;
    return signedToken(by, { iss: this.issuer.issuer, aud: AUDIENCE, sub: "x", exp, ...claims });
  }

  async close(): Promise<void> {
    await this.server.master.close();
    await this.issuer.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
