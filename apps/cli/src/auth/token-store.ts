import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";

/** What a sign-in leaves for a cluster. */
export interface StoredLogin {
  readonly issuer: string;
  readonly clientId: string;
  /** Further members of each request to the identity provider, such as `resource`. */
  readonly parameters: Readonly<Record<string, string>>;
  readonly accessToken: string;
  readonly refreshToken?: string | undefined;
  /** Milliseconds since the epoch; absent if the provider does not say. */
  readonly expiresAtMs?: number | undefined;
}

const MAX_LOGINS = 100;
const MAX_FILE_BYTES = 1_048_576;

/** The sign-ins of this user by the cluster's address, in a file that only the user reads. */
export class TokenStore {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  get file(): string {
    return join(this.#directory, "tokens.json");
  }

  get(endpoint: string): StoredLogin | undefined {
    return this.#read().find(([known]) => known === endpoint)?.[1];
  }

  /** Stores a sign-in, or removes it; the oldest makes room. */
  set(endpoint: string, login: StoredLogin | undefined): void {
    const others = this.#read().filter(([known]) => known !== endpoint);
    const logins = login ? [...others, [endpoint, login] as const] : others;
    const text = `${JSON.stringify({ version: 1, logins: logins.slice(-MAX_LOGINS) }, null, 2)}\n`;
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    const temporary = `${this.file}.${process.pid}.tmp`;
    try {
      writeFileSync(temporary, text, { mode: 0o600 });
      renameSync(temporary, this.file);
    } finally {
      rmSync(temporary, { force: true });
    }
  }

  #read(): (readonly [string, StoredLogin])[] {
    let text: string;
    try {
      text = readFileSync(this.file, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw new AppError("invalid_value", `Could not read ${this.file}: ${String(error)}.`);
    }
    try {
      if (text.length > MAX_FILE_BYTES) throw new Error("it is too large");
      const { logins } = JSON.parse(text) as { logins?: unknown };
      if (!Array.isArray(logins) || !logins.every(isEntry)) throw new Error("it has no logins");
      return logins;
    } catch {
      const message = `${this.file} is damaged. Delete it, and sign in again with \`heddle auth login\`.`;
      throw new AppError("invalid_value", message);
    }
  }
}

function isEntry(given: unknown): given is readonly [string, StoredLogin] {
  const [endpoint, login] = (Array.isArray(given) ? given : []) as [unknown, unknown];
  if (typeof endpoint !== "string" || typeof login !== "object" || !login) return false;
  const { issuer, clientId, accessToken } = login as Partial<StoredLogin>;
  return [issuer, clientId, accessToken].every((each) => typeof each === "string");
}
